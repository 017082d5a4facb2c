#include "support/legalise/legaliser.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "support/legalise/describe.h"
#include "support/legalise/planner.h"

namespace npu::legalise {

std::string signature_of(const npu_command& command, std::shared_ptr<const Program> program) {
  return signature(draft_of(command, std::move(program)), aliases_of(command));
}

// What is remembered of a signature.
struct Legaliser::Known {
  std::shared_ptr<const Recipe> recipe;  // null: there is no way
  std::string command, words;
  bool by_address = false;  // it says only that there is one for each skew of the addresses
  std::atomic<uint64_t> runs{0};
};

Legaliser::Legaliser(const npu_driver& driver, npu_device* device, Memory& memory, FindProgram find, Tell tell)
    : driver_(driver), device_(device), memory_(memory), find_(std::move(find)), tell_(std::move(tell)) {}

Legaliser::~Legaliser() {
  for (const auto& [content, program] : programs_)
    if (program) driver_.program_destroy(program);
}

npu_status Legaliser::program_create(const npu_program_desc& desc, npu_program** out) {
  const char* words = driver_.error_text();
  auto* made = new RefusedProgram{std::make_shared<const Program>(Program::copy_of(desc)), words ? words : ""};
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

// Called with the lock held.
Ask Legaliser::ask(bool* by_address) {
  return {
      .program = [this](const Program& program) { return make_program(program); },
      .supports = [this](const npu_command& asked) { return driver_.supports(device_, &asked) == NPU_OK; },
      .refused =
          [this, by_address](const Draft& draft) {
            const std::string form = draft_key(draft);
            if (!refused_forms_.count(form)) return false;
            *by_address = true;
            return refused_.count(form + skews(draft)) > 0;
          },
  };
}

// Called with the lock held.
void Legaliser::refuse(const Draft& draft) {
  const std::string form = draft_key(draft);
  refused_.insert(form + skews(draft));
  refused_forms_.insert(form);
}

// Called with the lock held.
std::shared_ptr<Legaliser::Known> Legaliser::keep(const Draft& draft, const std::string& key, Plan plan) {
  constexpr size_t kMost = 1 << 14;  // signatures: beyond that everything is decided anew
  if (known_.size() >= kMost) known_.clear();
  auto known = std::make_shared<Known>();
  known->recipe = std::move(plan.recipe);
  known->command = describe(draft);
  if (plan.by_address) {
    auto& all = known_[key];
    if (!all || !all->by_address) all = std::make_shared<Known>();
    all->by_address = true;
  }
  known_[plan.by_address ? key + skews(draft) : key] = known;
  return known;
}

std::shared_ptr<Legaliser::Known> Legaliser::find(const Draft& draft, const std::string& key) const {
  auto found = known_.find(key);
  if (found != known_.end() && found->second->by_address) found = known_.find(key + skews(draft));
  return found == known_.end() ? nullptr : found->second;
}

std::shared_ptr<Legaliser::Known> Legaliser::decide(const npu_command& command, const Draft& draft,
                                                    const std::string& key) {
  std::shared_ptr<Known> known;
  {
    std::lock_guard lock(mutex_);
    if (known = find(draft, key); known) return known;
    const RefusedProgram* own = refused_program(command.program);
    const char* text = own ? own->words.c_str() : driver_.error_text();  // before anything else is asked
    const std::string words = text ? text : "";
    bool by_address = false;
    Plan made = plan(draft, aliases_of(command), ask(&by_address));
    made.by_address |= by_address;
    known = keep(draft, key, std::move(made));
    known->words = words;
  }
  tell(*known);
  return known;
}

void Legaliser::tell(const Known& known) const {
  if (!tell_) return;
  if (!known.recipe) return tell_({known.command, known.words, {}, {}, 0});
  tell_({known.command, known.words, known.recipe->rules, describe(*known.recipe), 0});
}

npu_status Legaliser::supports(const npu_command& command) {
  const auto program = program_of(command);
  if (command.program && !program) return NPU_UNSUPPORTED;
  const Draft draft = draft_of(command, program);
  return decide(command, draft, signature(draft, aliases_of(command)))->recipe ? NPU_OK : NPU_UNSUPPORTED;
}

namespace {

// Of no bytes, too, there is an address; and the word in which scratch ends belongs to it.
uint64_t whole_words(uint64_t bytes) {
  return std::max<uint64_t>((bytes + 7) & ~uint64_t{7}, 8);
}

}  // namespace

// A run's scratch: each piece is there from its first step to its last, whatever happens in between.
class Legaliser::Scratch {
 public:
  Scratch(Memory& memory, npu_stream* stream) : memory_(memory), stream_(stream) {}
  ~Scratch() {
    for (const npu_addr addr : addr_)
      if (addr) memory_.give(stream_, addr);
  }
  Scratch(const Scratch&) = delete;

  npu_status begin(const Recipe& recipe, size_t step) {
    addr_.resize(recipe.scratch.size(), 0);
    for (size_t k = 0; k < addr_.size(); ++k) {
      if (recipe.life[k].first != step || addr_[k]) continue;
      const npu_status status = memory_.take(stream_, whole_words(recipe.scratch[k]), &addr_[k]);
      if (status != NPU_OK) return status;
    }
    return NPU_OK;
  }
  void end(const Recipe& recipe, size_t step) {
    for (size_t k = 0; k < addr_.size(); ++k)
      if (recipe.life[k].second == step && addr_[k]) memory_.give(stream_, std::exchange(addr_[k], 0));
  }
  const std::vector<npu_addr>& addresses() const { return addr_; }

 private:
  Memory& memory_;
  npu_stream* stream_;
  std::vector<npu_addr> addr_;
};

// One run of a recipe. What ran stays: where submit refuses a step, another way for that step alone takes its place.
struct Legaliser::Run {
  Legaliser& legaliser;
  npu_stream* stream;
  const npu_command& command;
  const Draft& draft;
  std::shared_ptr<const Recipe> recipe;
  size_t step = 0;

  npu_status all() {
    Scratch scratch(legaliser.memory_, stream);
    while (step < recipe->steps.size()) {
      npu_status status = scratch.begin(*recipe, step);
      if (status != NPU_OK) return status;
      Bound given(recipe->steps[step].draft, command, scratch.addresses());
      given.command.program = recipe->steps[step].program;
      status = legaliser.driver_.submit(stream, &given.command);
      if (status == NPU_UNSUPPORTED && another_way()) continue;
      if (status != NPU_OK) return status;
      scratch.end(*recipe, step++);
    }
    return NPU_OK;
  }

 private:
  bool another_way() {
    std::lock_guard lock(legaliser.mutex_);
    legaliser.refuse(recipe->steps[step].draft);
    bool by_address = true;
    Plan plan = replan(*recipe, step, aliases_of(command), legaliser.ask(&by_address));
    if (!plan.recipe) return false;
    recipe = std::move(plan.recipe);
    return true;
  }
};

npu_status Legaliser::submit(npu_stream* stream, const npu_command& command) {
  const auto program = program_of(command);
  if (command.program && !program) return NPU_UNSUPPORTED;
  const Draft draft = draft_of(command, program);
  const std::string key = signature(draft, aliases_of(command));
  // It was just refused, whatever `supports` says of its form: then submit has seen a size, a stride or an address.
  if (!refused_program(command.program)) {
    std::lock_guard lock(mutex_);
    if (!find(draft, key) && driver_.supports(device_, &command) == NPU_OK) refuse(draft);
  }
  // Each turn learns of one more command that the driver refuses at submit, and that no rule makes by itself.
  constexpr int kTurns = 32;
  for (int turn = 0; turn < kTurns; ++turn) {
    std::shared_ptr<Known> known = decide(command, draft, key);
    if (!known->recipe) return NPU_UNSUPPORTED;
    Run run{*this, stream, command, draft, known->recipe};
    const npu_status status = run.all();
    if (status != NPU_UNSUPPORTED) {
      if (run.recipe != known->recipe) {
        {
          std::lock_guard lock(mutex_);
          known = keep(draft, key, {run.recipe, true});
        }
        tell(*known);
      }
      known->runs.fetch_add(1, std::memory_order_relaxed);
      return status;
    }
    std::lock_guard lock(mutex_);
    if (find(draft, key) == known) known_.erase(known_.count(key + skews(draft)) ? key + skews(draft) : key);
    // What ran has changed an input, so that it cannot be run again. Rules put off such stores; this one could not.
    if (overwrites_input(draft, *run.recipe, run.step, aliases_of(command))) return NPU_ERROR_INTERNAL;
  }
  return NPU_UNSUPPORTED;
}

std::vector<Decision> Legaliser::decisions() const {
  std::lock_guard lock(mutex_);
  std::vector<Decision> out;
  for (const auto& [key, known] : known_) {
    if (known->by_address) continue;
    const auto& recipe = known->recipe;
    out.push_back({known->command, known->words, recipe ? recipe->rules : std::vector<std::string>(),
                   recipe ? describe(*recipe) : std::vector<std::string>(), known->runs.load()});
  }
  return out;
}

void Legaliser::reset_counts() {
  std::lock_guard lock(mutex_);
  for (const auto& [key, known] : known_) known->runs = 0;
}

}  // namespace npu::legalise
