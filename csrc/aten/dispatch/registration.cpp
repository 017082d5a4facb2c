#include "csrc/aten/dispatch/registration.h"

#include <cstring>
#include <string>
#include <vector>

namespace torch_npu {

OpName op_name(const char* text) {
  const char* dot = std::strchr(text, '.');
  if (!dot) return {text, ""};
  return {(new std::string(text, dot))->c_str(), dot + 1};  // kept for ever, as the kernel is
}

void register_kernel(OpName op, c10::DispatchKey key, c10::KernelFunction kernel, c10::impl::CppSignature signature) {
  // Never destroyed: an op may be called until the process ends.
  static auto* registrations = new std::vector<c10::RegistrationHandleRAII>;
  registrations->push_back(c10::Dispatcher::singleton().registerImpl({op.name, op.overload}, key, std::move(kernel),
                                                                     signature, nullptr, "registered by torch_npu"));
}

void run_fallback(OpName op, torch::jit::Stack& stack) {
  cpu_fallback(c10::Dispatcher::singleton().findSchemaOrThrow(op.name, op.overload), &stack);
}

}  // namespace torch_npu
