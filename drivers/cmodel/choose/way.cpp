#include "drivers/cmodel/choose/way.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

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

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
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
    refused_.append(first ? "" : ", ").append(quoted(name)).append(": ").append(quoted(reason));
  } else {
    refused_.append(first ? "; not " : ", not ").append(name).append(" (").append(reason).append(")");
  }
}

void WayLog::write(const char* name) const {
  const std::string kind = npu::command_name(command_.kind), op = command_.label ? command_.label : kind;
  const std::string text =
      the_log().json ? "{\"event\": \"way\", \"command\": " + quoted(kind) + ", \"op\": " + quoted(op) +
                           ", \"size\": " + quoted(sizes_of(command_)) + ", \"way\": " + quoted(name) +
                           ", \"refused\": {" + refused_ + "}}\n"
                     : "    -> way of " + kind + " " + op + " [" + sizes_of(command_) + "]: " + name + refused_ + "\n";
  std::fwrite(text.data(), 1, text.size(), the_log().file);  // at once, so that lines of threads do not mix
  std::fflush(the_log().file);
}

}  // namespace cmodel
