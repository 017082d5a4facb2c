// A chip that breaks: the C model behind a table in which command number `at` (default 3) goes wrong. Options:
//   does=hang         the command is accepted, and every wait after it lasts until the device is reset
//   does=hang_submit  submit itself lasts so long
//   does=hang_reset   the same as hang, and the reset does not return either
//   does=crash        submit dies with a bad address
//   does=crash_later  a thread of the driver does
//   does=status       submit answers 77, which is no status
//   does=lost         submit answers NPU_ERROR_DEVICE_LOST until the device is reset
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "support/loading/driver_library.h"
#include "support/loading/spec.h"

namespace {

const npu_driver* g_inner = nullptr;

struct Chip {
  std::mutex mutex;
  std::condition_variable changed;
  bool hangs = false, lost = false, resets = true;
  int64_t commands = 0, at = 3;
  std::string does = "hang";
} g_chip;

thread_local std::string g_problem;  // of our own; empty: ask the driver

// As long as the chip hangs.
void wait_for_chip() {
  std::unique_lock lock(g_chip.mutex);
  g_chip.changed.wait(lock, [] { return !g_chip.hangs; });
}

npu_status open(const char* options, npu_instance** out) {
  for (const auto& [key, value] : npu::parse_options(options)) {
    if (key == "at") g_chip.at = std::stoll(value);
    if (key == "does") g_chip.does = value;
  }
  return g_inner->open("", out);
}

// An address in the first page, which the compiler does not know to be one.
[[gnu::noinline]] void crash(int64_t near_zero) {
  *reinterpret_cast<volatile int*>(near_zero) = 1;
}

npu_status submit(npu_stream* stream, const npu_command* command) {
  g_problem.clear();
  std::unique_lock lock(g_chip.mutex);
  if (g_chip.lost) return NPU_ERROR_DEVICE_LOST;
  if (++g_chip.commands != g_chip.at) {
    lock.unlock();
    return g_inner->submit(stream, command);
  }
  const std::string& does = g_chip.does;
  if (does == "status") return static_cast<npu_status>(77);
  if (does == "lost") {
    g_chip.lost = true;
    g_problem = "expected an answer from the chip, got none";
    return NPU_ERROR_DEVICE_LOST;
  }
  if (does == "crash") crash(g_chip.at);
  if (does == "crash_later") {
    g_chip.hangs = true;  // the command is under way when it happens
    std::thread([] { crash(g_chip.at); }).detach();
    return NPU_OK;
  }
  g_chip.hangs = true;
  g_chip.resets = does != "hang_reset";
  lock.unlock();
  if (does == "hang_submit") wait_for_chip();
  return NPU_OK;
}

npu_status stream_synchronize(npu_stream* stream) {
  wait_for_chip();
  return g_inner->stream_synchronize(stream);
}

npu_status device_synchronize(npu_device* device) {
  wait_for_chip();
  return g_inner->device_synchronize(device);
}

npu_status event_synchronize(npu_event* event) {
  wait_for_chip();
  return g_inner->event_synchronize(event);
}

npu_status copy_to_host(npu_stream* stream, void* dst, npu_addr src, uint64_t size, uint32_t flags) {
  wait_for_chip();
  return g_inner->copy_to_host(stream, dst, src, size, flags);
}

npu_status device_reset(npu_device* device) {
  {
    std::unique_lock lock(g_chip.mutex);
    if (!g_chip.resets) g_chip.changed.wait(lock, [] { return g_chip.resets; });
    g_chip.hangs = g_chip.lost = false;
  }
  g_chip.changed.notify_all();
  return g_inner->device_reset(device);
}

const char* error_text() {
  return g_problem.empty() ? g_inner->error_text() : g_problem.c_str();
}

}  // namespace

extern "C" NPU_EXPORT const npu_driver* npu_driver_get(void) {
  static const npu_driver table = [] {
    std::string problem;
    g_inner = npu::load_library(npu::find_library("cmodel"), &problem);
    npu_driver out = *g_inner;
    out.name = "bad";
    out.error_text = error_text;
    out.open = open;
    out.submit = submit;
    out.stream_synchronize = stream_synchronize;
    out.device_synchronize = device_synchronize;
    out.event_synchronize = event_synchronize;
    out.copy_to_host = copy_to_host;
    out.device_reset = device_reset;
    return out;
  }();
  return &table;
}
