#include "csrc/core/device/driver_loader.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "csrc/core/device/driver_watch.h"
#include "support/guard/guard.h"
#include "support/loading/driver_library.h"
#include "support/loading/spec.h"

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

std::string path_of(const std::string& name, const std::string& source) {
  if (name.find('/') != std::string::npos) {
    if (!file_exists(name)) fail(source + " names the driver " + in_quotes(name) + ", but there is no such file");
    return name;
  }
  const std::string path = library_folder() + "/" + kPrefix + name + kSuffix;
  if (file_exists(path)) return path;
  auto known = available_drivers();
  // These are no hardware: they stand in front of a driver.
  std::erase_if(known, [](const std::string& driver) { return driver == "lockstep" || driver == "record"; });
  fail(source + " names the driver " + in_quotes(name) + ", expected " +
       (known.empty() ? std::string() : "one of " + joined(known) + " or ") +
       "the path of a driver library (searched " + library_folder() + ")");
}

std::string text_of(const npu_driver& api) {
  const char* text = api.error_text();
  return text && *text ? text : "the driver gave no reason";
}

[[noreturn]] void bad_list(const std::string& list, const std::string& source) {
  fail(source + " is " + in_quotes(list) +
       ", expected name[:options] or /path/library.so[:options], separated by commas; brackets in options must pair");
}

std::vector<std::string> entries(const std::string& list, const std::string& source) {
  try {
    return npu::split_outside_brackets(list, ',');
  } catch (const std::invalid_argument&) {
    bad_list(list, source);
  }
}

LoadedDriver load_one(const std::string& entry, const std::string& source) {
  LoadedDriver driver;
  const auto colon = entry.find(':');
  driver.name = entry.substr(0, colon);
  if (colon != std::string::npos) driver.options = entry.substr(colon + 1);
  driver.path = path_of(driver.name, source);

  std::string problem;
  const npu_driver* table = npu::load_library(driver.path, &problem);
  if (!table) fail("driver " + in_quotes(driver.name) + " " + problem);
  const npu_driver* guarded = npu::guard::guarded(table);
  driver.api = watchable(guarded ? guarded : table);  // too many of one are too many of the other, which says so
  if (driver.api->open(driver.options.c_str(), &driver.instance) != NPU_OK) {
    fail("driver " + in_quotes(driver.name) + " could not be started" +
         (driver.options.empty() ? "" : " with options " + in_quotes(driver.options)) + ": " + text_of(*driver.api));
  }
  if (driver.api->device_count(driver.instance, &driver.device_count) != NPU_OK) {
    const std::string reason = text_of(*driver.api);
    driver.api->close(driver.instance);
    fail("driver " + in_quotes(driver.name) + " could not count its devices: " + reason);
  }
  return driver;
}

// What is done about drivers that do not answer, or crash (docs/design/bad-chips.md).
void guard_against_bad_drivers() {
  npu::guard::report_crashes();
  const char* value = std::getenv("TORCH_NPU_TIMEOUT");
  if (!value || !*value) return;
  char* end = nullptr;
  const double seconds = std::strtod(value, &end);
  if (*end || !(seconds >= 0))
    fail("TORCH_NPU_TIMEOUT is " + in_quotes(value) + ", expected seconds, or 0 for no limit");
  npu::guard::set_time_limit(seconds);
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

std::vector<LoadedDriver> load_drivers(const std::string& list, const std::string& source) {
  guard_against_bad_drivers();
  std::vector<LoadedDriver> drivers;
  try {
    for (const std::string& part : entries(list, source)) {
      const std::string entry = trimmed(part);
      if (entry.empty()) bad_list(list, source);
      drivers.push_back(load_one(entry, source));
    }
  } catch (...) {
    for (const auto& driver : drivers) driver.api->close(driver.instance);
    throw;
  }
  return drivers;
}

}  // namespace torch_npu
