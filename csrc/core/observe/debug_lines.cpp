#include "csrc/core/observe/debug_lines.h"

#include <c10/util/Exception.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>

#include "support/driver/json_text.h"

namespace torch_npu::debug {
using npu::json_text;
namespace {

struct Log {
  std::mutex mutex;
  std::FILE* file = nullptr;  // null: stderr
  bool json = false;
  bool colored = false;
};

Log& log() {
  static auto* log = new Log;  // outlives ops that run at exit
  return *log;
}

struct TagStyle {
  const char* text;
  const char* color;
};

TagStyle style(Tag tag) {
  switch (tag) {
    case Tag::Npu:
      return {"NPU", "\033[32m"};
    case Tag::Fallback:
      return {"CPU<->NPU", "\033[33m"};
    case Tag::View:
      return {"VIEW", "\033[36m"};
    case Tag::Cpu:
      return {"CPU", "\033[31m"};
    case Tag::Copy:
      return {"COPY", "\033[34m"};
  }
  return {"?", ""};
}

constexpr const char* kYellow = "\033[33m";
constexpr const char* kReset = "\033[0m";

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value;
}

bool wants_color(const Options& options) {
  if (options.color != Color::Auto) return options.color == Color::Always;
  return options.file.empty() && isatty(STDERR_FILENO) && !is_set("NO_COLOR");
}

void write(const std::string& text) {
  Log& to = log();
  std::lock_guard lock(to.mutex);
  std::FILE* file = to.file ? to.file : stderr;
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);  // whoever looks for the last op before a crash finds it
}

std::string tagged(const char* text, const char* color) {
  const bool colored = log().colored;
  return std::string(colored ? color : "") + "[" + text + "]" + (colored ? kReset : "");
}

std::string human(uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  char text[32];
  const auto value = static_cast<double>(bytes);
  if (bytes < (1u << 20)) {
    std::snprintf(text, sizeof(text), "%.2f KB", value / 1024);
  } else if (bytes < (1u << 30)) {
    std::snprintf(text, sizeof(text), "%.2f MB", value / (1 << 20));
  } else {
    std::snprintf(text, sizeof(text), "%.2f GB", value / (1 << 30));
  }
  return text;
}

// "aten::mm.out" is "mm"; the hook that PyTorch gives to devices outside of its tree is the op itself.
std::string short_name(std::string_view name) {
  if (name.starts_with("aten::")) name.remove_prefix(6);
  constexpr std::string_view kHook = "_overrideable";
  if (name.ends_with(kHook)) name.remove_suffix(kHook.size());
  return std::string(name);
}

const char* short_dtype(const std::string& dtype) {
  static constexpr const char* kNames[][2] = {{"float32", ""},      {"bfloat16", "bf16"},  {"float16", "f16"},
                                              {"float64", "f64"},   {"int64", "i64"},      {"int32", "i32"},
                                              {"int16", "i16"},     {"int8", "i8"},        {"uint8", "u8"},
                                              {"complex64", "c64"}, {"complex128", "c128"}};
  for (const auto& [name, text] : kNames) {
    if (dtype == name) return text;
  }
  return dtype.c_str();
}

std::string shape_text(const TensorText& tensor) {
  std::string text = "[";
  for (size_t d = 0; d < tensor.shape.size(); ++d) text += (d ? "x" : "") + std::to_string(tensor.shape[d]);
  return text + "]" + short_dtype(tensor.dtype);
}

// Products read as they are written on paper: "[10] + [128x768] @ [768x10]".
std::string shapes_text(const std::string& op, const std::vector<TensorText>& tensors, bool is_product) {
  const std::string_view name(op);
  const bool adds = name == "addmm" || name == "baddbmm" || name == "addmv" || name == "addbmm";
  const bool multiplies =
      is_product || adds || name == "mm" || name == "bmm" || name == "matmul" || name == "mv" || name == "_int_mm";
  std::string text;
  for (size_t k = 0; k < tensors.size(); ++k) {
    if (k > 0) text += adds && k == 1 ? " + " : multiplies && k <= (adds ? 2u : 1u) ? " @ " : ", ";
    text += shape_text(tensors[k]);
  }
  return text;
}

std::string json_head(const char* event) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  char text[96];
  std::snprintf(text, sizeof(text), "{\"time\": %.6f, \"thread\": %ld, \"event\": \"%s\"",
                std::chrono::duration<double>(now).count(), static_cast<long>(syscall(SYS_gettid)), event);
  return text;
}

}  // namespace

void open_log(const Options& options) {
  std::FILE* file = nullptr;
  if (!options.file.empty()) {
    file = std::fopen(options.file.c_str(), "a");
    TORCH_CHECK(file, "expected a file for the debug log that can be written, got \"", options.file,
                "\": ", std::strerror(errno));
  }
  Log& to = log();
  std::lock_guard lock(to.mutex);
  if (to.file) std::fclose(to.file);
  to.file = file;
  to.json = options.format == Format::Json;
  to.colored = !to.json && wants_color(options);
}

void close_log() noexcept {
  Log& to = log();
  std::lock_guard lock(to.mutex);
  if (to.file) std::fclose(to.file);
  to.file = nullptr;
}

void write_line(const OpLine& line) {
  if (log().json) {
    std::string text = json_head("op") + ", \"tag\": " + json_text(style(line.tag).text) +
                       ", \"op\": " + json_text(line.op) + ", \"tensors\": [";
    for (size_t k = 0; k < line.tensors.size(); ++k) {
      const TensorText& tensor = line.tensors[k];
      text += k ? ", {\"shape\": [" : "{\"shape\": [";
      for (size_t d = 0; d < tensor.shape.size(); ++d) text += (d ? ", " : "") + std::to_string(tensor.shape[d]);
      text += "], \"dtype\": " + json_text(tensor.dtype) + ", \"device\": " + json_text(tensor.device) + "}";
    }
    text += "]";
    if (!line.route.empty()) text += ", \"route\": " + json_text(line.route);
    return write(text + "}\n");
  }
  const auto [tag, color] = style(line.tag);
  const std::string name = short_name(line.op);
  std::string text = tagged(tag, color) + " " + name;
  if (line.tag != Tag::View && !line.tensors.empty()) text += " " + shapes_text(name, line.tensors, line.is_product);
  if (!line.route.empty()) text += " " + line.route;
  write(text + "\n");
}

void write_line(const TransferLine& line, const std::string& op) {
  if (log().json) {
    return write(json_head("transfer") + ", \"direction\": " + json_text(line.direction) +
                 ", \"bytes\": " + std::to_string(line.bytes) + ", \"op\": " + json_text(op) + "}\n");
  }
  write("    -> " + tagged(line.direction, kYellow) + " " + human(line.bytes) + "\n");
}

void write_line(const CallLine& line, const std::string& op) {
  if (log().json) {
    std::string text = json_head("call") + ", \"call\": " + json_text(line.function);
    if (!line.what.empty()) text += ", \"what\": " + json_text(line.what);
    if (!line.problem.empty()) text += ", \"problem\": " + json_text(line.problem);
    return write(text + ", \"op\": " + json_text(op) + "}\n");
  }
  write(std::string(line.is_inside ? "    -> " : "-> ") + line.function + (line.what.empty() ? "" : " ") + line.what +
        (line.problem.empty() ? "" : ": ") + line.problem + "\n");
}

void write_line(const DecisionLine& line, const std::string& op) {
  if (log().json) {
    std::string text = json_head("legalised") + ", \"command\": " + json_text(line.command) +
                       ", \"words\": " + json_text(line.words) + ", \"rules\": [";
    for (size_t k = 0; k < line.rules.size(); ++k) text += (k ? ", " : "") + json_text(line.rules[k]);
    return write(text + "], \"steps\": " + std::to_string(line.steps) + ", \"op\": " + json_text(op) + "}\n");
  }
  std::string text = "    => the driver refuses " + line.command;
  if (!line.words.empty()) text += " (" + line.words + ")";
  if (line.rules.empty()) return write(text + "; no rule makes it from what it has\n");
  text += "\n       made from " + std::to_string(line.steps) + (line.steps == 1 ? " command: " : " commands: ");
  for (size_t k = 0; k < line.rules.size(); ++k) text += (k ? " | " : "") + line.rules[k];
  write(text + "\n");
}

}  // namespace torch_npu::debug
