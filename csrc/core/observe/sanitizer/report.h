// Reports of the sanitizer: their text, the list of them, and what becomes of the process.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/core/observe/sanitizer/record.h"
#include "npu/command.h"

namespace torch_npu::sanitizer {

struct Report {
  std::string kind;  // "memory", "init", "race"
  std::string title;
  std::string text;  // all of it, title included
  std::string op, place;
  std::string other_op, other_place;
  int64_t count = 1;  // how often the same was found
};

// `command` is null for copies. `next`: the allocation that could get the memory.
Report describe(const Fault& fault, const Record& at, const npu_command* command);
Report describe_early_free(const EarlyFree& early, const Record& next);

// The host uses pinned memory that a copy is using. `bytes`: of the copy's.
Report describe_host(const Record& at, bool writes, const Record& copy, bool copy_writes, Run bytes, uint64_t size);

// Keeps it, and raises or prints it.
void deliver(const Report& report, bool raises);

std::vector<Report> reports();
void clear_reports();
// From now on a process that would end with status 0 ends with kExitStatus if it has reports, and says so.
void watch_exit();
constexpr int kExitStatus = 66;

}  // namespace torch_npu::sanitizer
