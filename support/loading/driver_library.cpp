#include "support/loading/driver_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <stdexcept>

#include "support/loading/driver_table.h"

namespace npu {
namespace {

std::string own_folder() {
  Dl_info info;
  std::string path;
  if (dladdr(reinterpret_cast<void*>(&find_library), &info) && info.dli_fname) path = info.dli_fname;
  char absolute[PATH_MAX];
  // For a program dladdr gives the word it was started by, which may have come from PATH.
  if (path.find('/') == std::string::npos || access(path.c_str(), R_OK) != 0) {
    const ssize_t size = readlink("/proc/self/exe", absolute, sizeof absolute - 1);
    path = size > 0 ? std::string(absolute, static_cast<size_t>(size)) : "./";
  }
  return path.substr(0, path.rfind('/') + 1);
}

}  // namespace

const npu_driver* load_library(const std::string& path, std::string* problem) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    *problem = std::string("could not be loaded: ") + dlerror();
    return nullptr;
  }
  using Get = const npu_driver* (*)();
  auto get = reinterpret_cast<Get>(dlsym(library, "npu_driver_get"));
  const npu_driver* table = get ? get() : nullptr;
  *problem = get ? table_problem(table) : "is not a torch_npu driver: " + path + " does not export npu_driver_get";
  if (problem->empty()) return table;
  dlclose(library);
  return nullptr;
}

std::string find_library(const std::string& name) {
  if (name.find('/') != std::string::npos || name.ends_with(".so")) {
    const std::string path = name.find('/') == std::string::npos ? "./" + name : name;
    return access(path.c_str(), R_OK) == 0 ? path : "";
  }
  for (const char* up : {"", "../"}) {
    const std::string path = own_folder() + up + "libnpu_" + name + ".so";
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return "";
}

OpenedDriver open_driver(const std::string& spec) {
  OpenedDriver driver;
  driver.spec = spec;
  const size_t colon = spec.find(':');
  const std::string name = spec.substr(0, colon), options = colon == std::string::npos ? "" : spec.substr(colon + 1);
  const std::string path = find_library(name);
  if (name.empty() || path.empty())
    throw std::runtime_error("expected a driver's name or the path of its library, got \"" + name + "\" (searched " +
                             own_folder() + ")");
  std::string problem;
  driver.api = load_library(path, &problem);
  if (!driver.api) throw std::runtime_error("driver \"" + name + "\" " + problem);
  if (driver.api->open(options.c_str(), &driver.instance) != NPU_OK)
    throw std::runtime_error("driver \"" + name + "\" could not be started" +
                             (options.empty() ? "" : " with options \"" + options + "\"") + ": " +
                             driver.api->error_text());
  if (driver.api->device_count(driver.instance, &driver.devices) != NPU_OK || driver.devices == 0) {
    driver.api->close(driver.instance);
    throw std::runtime_error("driver \"" + name + "\" has no device");
  }
  return driver;
}

}  // namespace npu
