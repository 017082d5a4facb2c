#include "support/legalise/legaliser.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "support/legalise/describe.h"
#include "support/legalise/planner.h"

namespace npu::legalise {
namespace {

// The refused command as a draft: its operands are themselves.
Draft draft_of(const npu_command& command, std::shared_ptr<const Program> program) {
  Draft draft;
  draft.command = command;
  draft.command.operands = nullptr;
  draft.command.params = nullptr;
  draft.command.program = nullptr;
  draft.command.choice = 0;
  draft.program = std::move(program);
  for (uint32_t k = 0; k < command.operand_count; ++k) {
    Operand& operand = draft.operands.emplace_back();
    operand.form = command.operands[k];
    operand.form.addr = 0;
    operand.place = {Place::kOperand, k, 0};
  }
  for (uint32_t k = 0; k < command.param_count; ++k) draft.params.push_back({static_cast<int>(k), {}});
  return draft;
}

// For each operand the first one at its address.
std::vector<uint32_t> aliases_of(const npu_command& command) {
  std::vector<uint32_t> out(command.operand_count);
  const auto memory = [&](uint32_t k) { return !(command.operands[k].flags & NPU_OPERAND_IMMEDIATE); };
  for (uint32_t k = 0; k < command.operand_count; ++k) {
    out[k] = k;
    for (uint32_t other = 0; other < k && memory(k) && out[k] == k; ++other)
      if (memory(other) && command.operands[other].addr == command.operands[k].addr) out[k] = other;
  }
  return out;
}

}  // namespace

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
  npu_addr operator[](size_t k) const { return addr_[k]; }

 private:
  Memory& memory_;
  npu_stream* stream_;
  const Recipe& recipe_;
  std::vector<npu_addr> addr_;
};

}  // namespace

npu_status Legaliser::run(npu_stream* stream, const npu_command& command, const Recipe& recipe, size_t* refused) {
  Scratch scratch(memory_, stream, recipe);
  npu_operand operands[NPU_MAX_OPERANDS];
  npu_scalar params[NPU_MAX_PARAMS];
  for (size_t step = 0; step < recipe.steps.size(); ++step) {
    const Draft& draft = recipe.steps[step].draft;
    npu_status status = scratch.begin(step);
    if (status != NPU_OK) return status;
    for (size_t k = 0; k < draft.operands.size(); ++k) {
      const auto& [form, place] = draft.operands[k];
      operands[k] = form;
      const auto offset = static_cast<uint64_t>(place.offset);
      if (place.kind == Place::kScratch) operands[k].addr = scratch[place.number] + offset;
      if (place.kind == Place::kOperand)
        operands[k].addr = part_of(command.operands[place.number].addr, place.part) + offset;
    }
    for (size_t k = 0; k < draft.params.size(); ++k) {
      const auto& [from, value, part] = draft.params[k];
      params[k] = value;
      if (from >= 0) params[k].u = part_of(command.params[from].u, part);
    }
    npu_command given = draft.command;
    given.operands = operands;
    given.operand_count = static_cast<uint32_t>(draft.operands.size());
    given.params = params;
    given.param_count = static_cast<uint32_t>(draft.params.size());
    given.program = recipe.steps[step].program;
    given.label = command.label;
    status = driver_.submit(stream, &given);
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
