#include "drivers/cmodel/choose/way.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "support/driver/json_text.h"
#include "support/program/program.h"

namespace cmodel {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// The variables are those of the host's debug log: its lines and these stand in one file, in one format.
struct Log {
  bool json = variable("TORCH_NPU_DEBUG_FORMAT") == "json";
  std::FILE* file = stderr;
  Log() {
    const std::string path = variable("TORCH_NPU_DEBUG_FILE");
    if (std::FILE* named = path.empty() ? nullptr : std::fopen(path.c_str(), "a")) file = named;
  }
};

const Log& the_log() {
  static const Log* log = new Log;  // outlives commands that run at exit
  return *log;
}

std::string sizes_of(const npu_command& command) {
  std::string text;
  for (int d = 0; d < command.rank; ++d) text.append(d ? "x" : "").append(std::to_string(command.size[d]));
  return text;
}

}  // namespace

const bool WayLog::enabled_ = variable("TORCH_NPU_DEBUG") == "3";

void WayLog::add(const char* name, const char* reason) {
  const bool first = refused_.empty();
  if (the_log().json) {
    refused_.append(first ? "" : ", ").append(npu::json_text(name)).append(": ").append(npu::json_text(reason));
  } else {
    refused_.append(first ? "; not " : ", not ").append(name).append(" (").append(reason).append(")");
  }
}

void WayLog::write(const char* name) const {
  const std::string kind = npu::command_name(command_.kind), op = command_.label ? command_.label : kind;
  std::string text;
  if (the_log().json) {
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    text.append("{\"time\": ").append(std::to_string(now.count()));
    text.append(", \"thread\": ").append(std::to_string(syscall(SYS_gettid)));
    text.append(", \"event\": \"way\", \"command\": ")
        .append(npu::json_text(kind))
        .append(", \"op\": ")
        .append(npu::json_text(op));
    text.append(", \"size\": ")
        .append(npu::json_text(sizes_of(command_)))
        .append(", \"way\": ")
        .append(npu::json_text(name));
    text.append(", \"refused\": {").append(refused_).append("}}\n");
  } else {
    text.append("    -> way of ").append(kind).append(" ").append(op).append(" [").append(sizes_of(command_));
    text.append("]: ").append(name).append(refused_).append("\n");
  }
  std::fwrite(text.data(), 1, text.size(), the_log().file);  // at once, so that lines of threads do not mix
  std::fflush(the_log().file);
}

}  // namespace cmodel
