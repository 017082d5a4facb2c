// The reference as a driver (failing.cpp) that announces three ways to run a MAP or a MATMUL and takes its time: 2 ms
// by itself, and 4, 0 and 1 ms for choices 3, 5 and 6. Options: log=PATH appends a line with the choice of every such
// command; broken=result makes choice 6 compute nothing, broken=number accepts every number, broken=text announces a
// number twice.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "npu/runtime.h"

extern "C" const npu_driver* failing_driver_get(void);
#define npu_driver_get failing_driver_get
#include "tests/drivers/failing.cpp"
#undef npu_driver_get

namespace {

struct Way {
  uint32_t id;
  const char* text;
  int milliseconds;
};
constexpr Way kWays[] = {{3, "way=slow", 4}, {5, "way=fast", 0}, {6, "way=middle", 1}};

std::string log_path, broken;

// Takes "key=value" out of the options.
std::string take(std::string& options, const std::string& key) {
  const size_t found = options.find(key + "=");
  if (found == std::string::npos) return "";
  const size_t end = options.find(':', found);
  const size_t from = found + key.size() + 1;
  const std::string value = options.substr(from, end == std::string::npos ? end : end - from);
  options.erase(found, end == std::string::npos ? end : end - found + 1);
  return value;
}

npu_status open_choosing(const char* options, npu_instance** out) {
  std::string rest = options;
  log_path = take(rest, "log");
  broken = take(rest, "broken");
  return driver_open(("fail_at=0:" + rest).c_str(), out);
}

bool has_choices(const npu_command& command) {
  return command.kind == NPU_MAP || command.kind == NPU_MATMUL;
}

npu_status choices(npu_device*, const npu_command* command, npu_choice* out, uint32_t capacity, uint32_t* count) {
  *count = has_choices(*command) ? std::size(kWays) : 0;
  for (uint32_t k = 0; k < std::min(*count, capacity); ++k) {
    out[k].id = broken == "text" ? 3 : kWays[k].id;
    std::snprintf(out[k].text, sizeof out[k].text, "%s", kWays[k].text);
  }
  return NPU_OK;
}

npu_status submit_choosing(npu_stream* stream, const npu_command* command) {
  npu_command plain = *command;
  plain.choice = 0;
  const Way* way = nullptr;
  for (const Way& each : kWays) {
    if (has_choices(*command) && each.id == command->choice) way = &each;
  }
  if (command->choice && !way && broken != "number") {
    return fail(NPU_ERROR_INVALID, "expected choice 0, 3, 5 or 6, got " + std::to_string(command->choice));
  }
  if (has_choices(*command) && !log_path.empty()) {
    if (std::FILE* file = std::fopen(log_path.c_str(), "a")) {
      std::fprintf(file, "%s %d\n", command->label, command->choice);
      std::fclose(file);
    }
  }
  // Tests of many commands need not wait.
  if (has_choices(*command) && !log_path.empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(way ? way->milliseconds : 2));
  if (way && way->id == 6 && broken == "result") return NPU_OK;
  return submit(stream, &plain);
}

}  // namespace

const npu_driver* npu_driver_get(void) {
  static const npu_driver driver = [] {
    npu_driver d = *failing_driver_get();
    d.name = "choosing";
    d.open = open_choosing;
    d.submit = submit_choosing;
    d.choices = choices;
    return d;
  }();
  return &driver;
}
