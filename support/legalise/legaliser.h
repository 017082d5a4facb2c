// What a driver refuses is made from what it takes. Knows the contract and no framework: who gives commands to a driver
// asks here when it says NPU_UNSUPPORTED. docs/design/legalisation.md.
//
//   status = driver.submit(stream, &command);
//   if (status == NPU_UNSUPPORTED) status = legaliser.submit(stream, command);
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "npu/runtime.h"
#include "support/legalise/draft/draft.h"

namespace npu::legalise {

// Device memory for scratch. Work on a stream is in order, so that memory that was given back may be taken for the
// stream's next command at once, as a cache of device memory does it.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual npu_status take(npu_stream* stream, uint64_t bytes, npu_addr* out) = 0;
  virtual void give(npu_stream* stream, npu_addr addr) = 0;
};

// A program that the driver refused, so that commands can carry it all the same. Its handle is odd, which no pointer to
// an object is: who submits sees it without looking anything up.
struct RefusedProgram {
  std::shared_ptr<const Program> program;
  std::string words;  // the driver's own
  npu_program* handle() const { return reinterpret_cast<npu_program*>(reinterpret_cast<uintptr_t>(this) | 1); }
};
inline const RefusedProgram* refused_program(const npu_program* handle) {
  const auto bits = reinterpret_cast<uintptr_t>(handle);
  return bits & 1 ? reinterpret_cast<const RefusedProgram*>(bits & ~uintptr_t{1}) : nullptr;
}

// What was decided for a signature: commands that the driver takes.
struct Ask;
struct Plan;
struct Step {
  Draft draft;
  npu_program* program = nullptr;
  std::string rules;  // that led here: "product, then its program"
};
struct Recipe {
  std::vector<Step> steps;
  std::vector<uint64_t> scratch;                // bytes of each
  std::vector<std::pair<size_t, size_t>> life;  // of each scratch: its first and its last step
  std::vector<std::string> rules;               // names, each once, in the order of their use
};

// A decision, for people: what was refused, and what became of it.
struct Decision {
  std::string command;             // "MATMUL aten::addmm 64x10 bf16 ..."
  std::string words;               // the driver's own, when it refused
  std::vector<std::string> rules;  // none: nothing was found
  std::vector<std::string> steps;  // the commands, in order
  uint64_t runs = 0;
};

// What decisions are remembered by: all of a command but addresses, parameters and the values of immediates.
std::string signature_of(const npu_command& command, std::shared_ptr<const Program> program);

class Legaliser {
 public:
  // What a driver was told to make of a handle of its own; null: unknown.
  using FindProgram = std::function<std::shared_ptr<const Program>(const npu_program*)>;
  // Hears of every new decision, on the thread that asked.
  using Tell = std::function<void(const Decision&)>;

  Legaliser(const npu_driver& driver, npu_device* device, Memory& memory, FindProgram find, Tell tell = {});
  ~Legaliser();
  Legaliser(const Legaliser&) = delete;

  // As the contract's, of which they are the second answer: call them where the driver has said NPU_UNSUPPORTED.
  npu_status program_create(const npu_program_desc& desc, npu_program** out);
  static void program_destroy(const RefusedProgram* program);  // who destroys calls it for odd handles
  // Sizes and strides must be there, because what is made depends on them; so must the parameters of SCATTER.
  npu_status supports(const npu_command& command);
  npu_status submit(npu_stream* stream, const npu_command& command);

  // Since the start or the last reset.
  std::vector<Decision> decisions() const;
  void reset_counts();

 private:
  struct Known;
  class Scratch;
  struct Run;
  std::shared_ptr<const Program> program_of(const npu_command& command) const;
  // Null: there is no way.
  std::shared_ptr<Known> decide(const npu_command& command, const Draft& draft, const std::string& key);
  std::shared_ptr<Known> find(const Draft& draft, const std::string& key) const;
  std::shared_ptr<Known> keep(const Draft& draft, const std::string& key, Plan plan);
  void tell(const Known& known) const;
  Ask ask(bool* by_address);
  void refuse(const Draft& draft);
  npu_program* make_program(const Program& program);

  const npu_driver& driver_;
  npu_device* device_;
  Memory& memory_;
  FindProgram find_;
  Tell tell_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Known>> known_;
  std::set<std::string> refused_;        // drafts that supports() takes and submit() does not, by key and skews
  std::set<std::string> refused_forms_;  // their keys
  std::map<std::string, npu_program*> programs_;  // by content; null: the driver refuses it
};

}  // namespace npu::legalise
