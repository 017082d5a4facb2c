#include "csrc/core/driver_loader.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <stdexcept>

#include "support/driver_table.h"

namespace torch_npu {
namespace {

constexpr const char* kPrefix = "libnpu_";
constexpr const char* kSuffix = ".so";

std::string in_quotes(const std::string& text) {
  return "\"" + text + "\"";
}

[[noreturn]] void fail(const std::string& sentence) {
  throw std::runtime_error(sentence);
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

bool file_exists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

std::string path_of(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (!file_exists(name))
      fail("TORCH_NPU_DRIVER names the driver " + in_quotes(name) + ", but there is no such file");
    return name;
  }
  const std::string path = library_folder() + "/" + kPrefix + name + kSuffix;
  if (file_exists(path)) return path;
  const auto known = available_drivers();
  fail("TORCH_NPU_DRIVER names the driver " + in_quotes(name) + ", expected " +
       (known.empty() ? std::string() : "one of " + joined(known) + " or ") +
       "the path of a driver library (searched " + library_folder() + ")");
}

std::string text_of(const npu_driver& api) {
  const char* text = api.error_text();
  return text && *text ? text : "the driver gave no reason";
}

LoadedDriver load_one(const std::string& entry) {
  LoadedDriver driver;
  const auto colon = entry.find(':');
  driver.name = entry.substr(0, colon);
  if (colon != std::string::npos) driver.options = entry.substr(colon + 1);
  driver.path = path_of(driver.name);

  void* library = dlopen(driver.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fail("driver " + in_quotes(driver.name) + " could not be loaded: " + dlerror());
  try {
    using Get = const npu_driver* (*)();
    auto get = reinterpret_cast<Get>(dlsym(library, "npu_driver_get"));
    if (!get) {
      fail("driver " + in_quotes(driver.name) + " is not a torch_npu driver: " + driver.path +
           " does not export npu_driver_get");
    }
    driver.api = get();
    if (const std::string problem = npu::table_problem(driver.api); !problem.empty()) {
      fail("driver " + in_quotes(driver.name) + " " + problem);
    }
    if (driver.api->open(driver.options.c_str(), &driver.instance) != NPU_OK) {
      fail("driver " + in_quotes(driver.name) + " could not be started" +
           (driver.options.empty() ? "" : " with options " + in_quotes(driver.options)) + ": " + text_of(*driver.api));
    }
    if (driver.api->device_count(driver.instance, &driver.device_count) != NPU_OK) {
      const std::string reason = text_of(*driver.api);
      driver.api->close(driver.instance);
      fail("driver " + in_quotes(driver.name) + " could not count its devices: " + reason);
    }
  } catch (...) {
    dlclose(library);
    throw;
  }
  return driver;
}

}  // namespace

std::string library_folder() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&library_folder), &info) || !info.dli_fname) return ".";
  const std::string path = info.dli_fname;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

std::vector<std::string> available_drivers() {
  std::vector<std::string> names;
  DIR* folder = opendir(library_folder().c_str());
  if (!folder) return names;
  const std::string prefix = kPrefix, suffix = kSuffix;
  while (const dirent* entry = readdir(folder)) {
    const std::string file = entry->d_name;
    if (file.starts_with(prefix) && file.ends_with(suffix) && file.size() > prefix.size() + suffix.size()) {
      names.push_back(file.substr(prefix.size(), file.size() - prefix.size() - suffix.size()));
    }
  }
  closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<LoadedDriver> load_drivers(const std::string& list) {
  std::vector<LoadedDriver> drivers;
  try {
    for (size_t begin = 0; begin <= list.size();) {
      const size_t comma = std::min(list.find(',', begin), list.size());
      const std::string entry = trimmed(list.substr(begin, comma - begin));
      if (entry.empty()) {
        fail("TORCH_NPU_DRIVER is " + in_quotes(list) +
             ", expected name[:options] or /path/library.so[:options], separated by commas");
      }
      drivers.push_back(load_one(entry));
      begin = comma + 1;
    }
  } catch (...) {
    for (const auto& driver : drivers) driver.api->close(driver.instance);
    throw;
  }
  return drivers;
}

}  // namespace torch_npu
