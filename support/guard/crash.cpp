// What a crash in a driver leaves behind: a few lines on stderr.
#include <dlfcn.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "support/guard/calls.h"
#include "support/guard/guard.h"

namespace npu::guard {
namespace {

constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
std::array<struct sigaction, 65> g_before{};

// Nothing here allocates or waits: the process is broken.
char g_line[1024];

template <class... Values>
void print(const char* format, Values... values) {
  const int size = std::snprintf(g_line, sizeof g_line, format, values...);
  const auto written = static_cast<size_t>(size) < sizeof g_line ? static_cast<size_t>(size) : sizeof g_line - 1;
  if (size > 0 && ::write(STDERR_FILENO, g_line, written) < 0) return;
}

void print_commands() {
  char text[400];
  int shown = 0;
  for (size_t thread = 0; thread < thread_count(); ++thread) {
    Given given;
    size_t kept = 0;
    while (thread_calls(thread).recent(kept, &given)) ++kept;
    while (kept-- > 0) {
      if (!thread_calls(thread).recent(kept, &given) || is_known_done(given)) continue;
      if (++shown > 8) break;
      write_text(given, text, sizeof text);
      print("  %s\n", text);
    }
  }
  if (shown > 8) print("  and more\n");
  if (!shown) print("  none\n");
}

void* instruction_of(void* context) {
#if defined(__x86_64__)
  return reinterpret_cast<void*>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<void*>(static_cast<ucontext_t*>(context)->uc_mcontext.pc);
#else
  return nullptr;
#endif
}

// A thread of a driver's own has no place among the calls: its code tells.
const npu_driver* driver_of_code(void* instruction) {
  Dl_info code, table;
  if (!instruction || !dladdr(instruction, &code)) return nullptr;
  for (size_t thread = 0; thread < thread_count(); ++thread) {
    const npu_driver* driver = thread_calls(thread).driver.load();
    if (driver && dladdr(driver, &table) && std::strcmp(table.dli_fname, code.dli_fname) == 0) return driver;
  }
  return nullptr;
}

void on_crash(int signal, siginfo_t* info, void* context) {
  const Calls* calls = this_thread_if_known();
  if (calls && calls->inside()) {
    print("\ntorch_npu: signal %d (%s) in %s of driver \"%s\"; commands not known to be done, the last one last:\n",
          signal, strsignal(signal), calls->function.load(), calls->driver.load()->name);
    print_commands();
  } else if (const npu_driver* driver = driver_of_code(instruction_of(context))) {
    print("\ntorch_npu: signal %d (%s) in a thread of driver \"%s\"; commands not known to be done:\n", signal,
          strsignal(signal), driver->name);
    print_commands();
  }
  // On to who had the signal before: a fault comes again when this returns, what was sent is sent again.
  sigaction(signal, &g_before[static_cast<size_t>(signal)], nullptr);
  if (info->si_code <= 0) raise(signal);
}

}  // namespace

void report_crashes() {
  static std::once_flag once;
  std::call_once(once, [] {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    for (const int signal : kSignals) {
      struct sigaction ours{};
      ours.sa_sigaction = on_crash;
      ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
      sigaction(signal, &ours, &g_before[static_cast<size_t>(signal)]);
    }
#endif
  });
}

}  // namespace npu::guard
