#include "tests/cpp/cmodel/rig.h"

#include <dlfcn.h>

#include <stdexcept>

const npu_driver* driver() {
  static const npu_driver* table = [] {
    void* library = dlopen(NPU_CMODEL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    return reinterpret_cast<const npu_driver* (*)()>(dlsym(library, "npu_driver_get"))();
  }();
  return table;
}
