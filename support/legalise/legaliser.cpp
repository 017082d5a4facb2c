#include "support/legalise/legaliser.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "support/legalise/describe.h"
#include "support/legalise/planner.h"

namespace npu::legalise {
// What is remembered of a signature.
struct Legaliser::Known {
  std::shared_ptr<const Recipe> recipe;  // null: there is no way
  std::string command;
  std::atomic<uint64_t> runs{0};
};

Legaliser::Legaliser(const npu_driver& driver, npu_device* device, Memory& memory, FindProgram find, Tell tell)
    : driver_(driver), device_(device), memory_(memory), find_(std::move(find)), tell_(std::move(tell)) {}

Legaliser::~Legaliser() {
  for (const auto& [content, program] : programs_)
    if (program) driver_.program_destroy(program);
}

npu_status Legaliser::program_create(const npu_program_desc& desc, npu_program** out) {
  auto* made = new RefusedProgram{std::make_shared<const Program>(Program::copy_of(desc))};
  *out = made->handle();
  return NPU_OK;
}

void Legaliser::program_destroy(const RefusedProgram* program) {
  delete program;
}

std::shared_ptr<const Program> Legaliser::program_of(const npu_command& command) const {
  if (!command.program) return nullptr;
  if (const RefusedProgram* own = refused_program(command.program)) return own->program;
  return find_(command.program);
}

// Called with the lock held.
npu_program* Legaliser::make_program(const Program& program) {
  const npu_program_desc desc = program.desc();
  const auto [at, fresh] = programs_.try_emplace(content_key(program), nullptr);
  if (fresh && driver_.program_create(device_, &desc, &at->second) != NPU_OK) at->second = nullptr;
  return at->second;
}

std::shared_ptr<Legaliser::Known> Legaliser::decide(const npu_command& command, const Draft& draft,
                                                    const std::string& key) {
  std::shared_ptr<Known> known;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    const Ask ask{
        .program = [&](const Program& program) { return make_program(program); },
        .supports = [&](const npu_command& asked) { return driver_.supports(device_, &asked) == NPU_OK; },
        .refused = [&](const std::string& draft_key) { return refused_.count(draft_key) > 0; },
    };
    known = std::make_shared<Known>();
    known->recipe = plan(draft, aliases_of(command), ask);
    known->command = describe(draft);
    constexpr size_t kMost = 1 << 14;  // signatures: beyond that everything is decided anew
    if (known_.size() >= kMost) known_.clear();
    known_[key] = known;
  }
  if (tell_)
    tell_({known->command, known->recipe ? known->recipe->rules : std::vector<std::string>(),
           known->recipe ? describe(*known->recipe) : std::vector<std::string>(), 0});
  return known;
}

npu_status Legaliser::supports(const npu_command& command) {
  const auto program = program_of(command);
  if (command.program && !program) return NPU_UNSUPPORTED;
  const Draft draft = draft_of(command, program);
  return decide(command, draft, signature(draft, aliases_of(command)))->recipe ? NPU_OK : NPU_UNSUPPORTED;
}

npu_status Legaliser::submit(npu_stream* stream, const npu_command& command) {
  const auto program = program_of(command);
  if (command.program && !program) return NPU_UNSUPPORTED;
  const Draft draft = draft_of(command, program);
  const std::string key = signature(draft, aliases_of(command));
  // It was just refused, whatever `supports` says of its form.
  if (!refused_program(command.program)) {
    std::lock_guard lock(mutex_);
    if (!known_.count(key)) refused_.insert(draft_key(draft));
  }
  // Each turn learns of one more command that the driver refuses when it sees sizes and strides.
  constexpr int kTurns = 32;
  for (int turn = 0; turn < kTurns; ++turn) {
    const std::shared_ptr<Known> known = decide(command, draft, key);
    if (!known->recipe) return NPU_UNSUPPORTED;
    size_t refused = 0;
    const npu_status status = run(stream, command, *known->recipe, &refused);
    if (status != NPU_UNSUPPORTED) {
      known->runs.fetch_add(1, std::memory_order_relaxed);
      return status;
    }
    std::lock_guard lock(mutex_);
    refused_.insert(draft_key(known->recipe->steps[refused].draft));
    if (const auto found = known_.find(key); found != known_.end() && found->second == known) known_.erase(found);
    // What ran has changed an input, so that it cannot be run again. Rules put off such stores; this one could not.
    if (overwrites_input(draft, *known->recipe, refused, aliases_of(command))) return NPU_ERROR_INTERNAL;
  }
  return NPU_UNSUPPORTED;
}

namespace {

// A run's scratch: each piece is there from its first step to its last, whatever happens in between.
class Scratch {
 public:
  Scratch(Memory& memory, npu_stream* stream, const Recipe& recipe)
      : memory_(memory), stream_(stream), recipe_(recipe), addr_(recipe.scratch.size(), 0) {}
  ~Scratch() {
    for (const npu_addr addr : addr_)
      if (addr) memory_.give(stream_, addr);
  }
  Scratch(const Scratch&) = delete;

  npu_status begin(size_t step) {
    for (size_t k = 0; k < addr_.size(); ++k) {
      if (recipe_.life[k].first != step) continue;
      const npu_status status = memory_.take(stream_, std::max<uint64_t>(recipe_.scratch[k], 1), &addr_[k]);
      if (status != NPU_OK) return status;
    }
    return NPU_OK;
  }
  void end(size_t step) {
    for (size_t k = 0; k < addr_.size(); ++k)
      if (recipe_.life[k].second == step && addr_[k]) memory_.give(stream_, std::exchange(addr_[k], 0));
  }
  const std::vector<npu_addr>& addresses() const { return addr_; }

 private:
  Memory& memory_;
  npu_stream* stream_;
  const Recipe& recipe_;
  std::vector<npu_addr> addr_;
};

}  // namespace

npu_status Legaliser::run(npu_stream* stream, const npu_command& command, const Recipe& recipe, size_t* refused) {
  Scratch scratch(memory_, stream, recipe);
  for (size_t step = 0; step < recipe.steps.size(); ++step) {
    const Draft& draft = recipe.steps[step].draft;
    npu_status status = scratch.begin(step);
    if (status != NPU_OK) return status;
    Bound given(draft, command, scratch.addresses());
    given.command.program = recipe.steps[step].program;
    status = driver_.submit(stream, &given.command);
    if (status == NPU_UNSUPPORTED) *refused = step;
    if (status != NPU_OK) return status;
    scratch.end(step);
  }
  return NPU_OK;
}

std::vector<Decision> Legaliser::decisions() const {
  std::lock_guard lock(mutex_);
  std::vector<Decision> out;
  for (const auto& [key, known] : known_) {
    const auto& recipe = known->recipe;
    out.push_back({known->command, recipe ? recipe->rules : std::vector<std::string>(),
                   recipe ? describe(*recipe) : std::vector<std::string>(), known->runs.load()});
  }
  return out;
}

void Legaliser::reset_counts() {
  std::lock_guard lock(mutex_);
  for (const auto& [key, known] : known_) known->runs = 0;
}

}  // namespace npu::legalise
