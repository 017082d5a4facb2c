// Ops without a kernel run on the CPU. This header is the book-keeping around that; the boxed kernel itself is
// declared in registration.h.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace torch_npu::fallback {

// What happens when an op has to run on the CPU. From TORCH_NPU_FALLBACK when the library is loaded.
enum class Mode {
  Warn,   // warn once per op name
  Quiet,  // only count
  Error,  // raise; the op does not run
};

Mode mode() noexcept;
void set_mode(Mode mode) noexcept;
Mode parse_mode(const std::string& text);  // "warn", "quiet" or "error", else throws and names the three

// Op name with overload ("aten::add.Tensor") to the number of times that it ran on the CPU, or was kept from it.
// Thread-safe.
std::map<std::string, uint64_t> counts();
// Clears the counts, and lets every op warn again.
void reset();

// In mode Error, counts and raises: call it before the work.
void check(const std::string& op);
// Counts one run of `op` on the CPU and warns of the first; checks too. Where the work may still refuse its arguments,
// call it behind the work.
void note(const std::string& op);

}  // namespace torch_npu::fallback
