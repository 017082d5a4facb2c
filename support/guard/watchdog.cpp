#include "support/guard/watchdog.h"

#include <pthread.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "support/guard/calls.h"
#include "support/guard/guard.h"

namespace npu::guard {

std::atomic<bool> g_watchdog_sleeps{true};

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kTick = 100ms;
constexpr auto kIdle = 5s;        // without a call under way the watchdog sleeps, and looks this often all the same
constexpr auto kLong = 500ms;     // from then on Ctrl-C is ours as well
constexpr auto kNotice = 60s;     // one line then, once per process
constexpr auto kLeastGrace = 5s;  // for a reset to end a wait

std::atomic<double> g_limit{0};

// -- Ctrl-C: counted, then handed to who had it before --

std::atomic<int> g_interrupts{0};
struct sigaction g_before_interrupt{};
bool g_has_interrupt = false;

void on_interrupt(int signal, siginfo_t* info, void* context) {
  g_interrupts.fetch_add(1);
  if (g_before_interrupt.sa_flags & SA_SIGINFO)
    g_before_interrupt.sa_sigaction(signal, info, context);
  else
    g_before_interrupt.sa_handler(signal);
}

void take_interrupts() {
  if (g_has_interrupt) return;
  struct sigaction now{};
  // Where it ends the process, or is ignored, that is what somebody wants.
  if (sigaction(SIGINT, nullptr, &now) != 0) return;
  if (!(now.sa_flags & SA_SIGINFO) && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)) return;
  g_before_interrupt = now;
  g_interrupts = 0;
  struct sigaction ours{};
  ours.sa_sigaction = on_interrupt;
  ours.sa_flags = (now.sa_flags & ~SA_RESETHAND) | SA_SIGINFO;
  ours.sa_mask = now.sa_mask;
  g_has_interrupt = sigaction(SIGINT, &ours, nullptr) == 0;
}

void give_interrupts_back() {
  if (!g_has_interrupt) return;
  struct sigaction now{};
  sigaction(SIGINT, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_interrupt) sigaction(SIGINT, &g_before_interrupt, nullptr);
  g_has_interrupt = false;
}

// -- one thread's wait --

enum class Stage { kWaits, kWarned, kReset };

struct Wait {
  uint64_t turn = 0;
  Clock::time_point since, reset_since;
  Stage stage = Stage::kWaits;
  int interrupts = 0;  // that were answered
};

std::string seconds(Clock::duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(duration).count());
  return text;
}

std::string call_of(const Calls& calls) {
  return std::string(calls.function.load()) + " of driver \"" + calls.driver.load()->name + "\"";
}

// What was given to the device and is not known to be done, by whatever thread; a few of them, oldest first.
std::string under_way(const npu_device* device) {
  constexpr size_t kMost = 4;
  std::vector<Given> open;
  for (size_t thread = 0; thread < thread_count(); ++thread)
    for (const Given& given : thread_calls(thread).recent())
      if (owner_of(given.stream).device == device && !is_known_done(given)) open.push_back(given);
  if (open.empty()) return "no command is known to be under way";
  std::string out = "not known to be done: ";
  for (size_t k = 0; k < open.size() && k < kMost; ++k) out += (k ? "; " : "") + text(open[k]);
  if (open.size() > kMost) out += "; and " + std::to_string(open.size() - kMost) + " more";
  return out;
}

void say(const std::string& line) {
  std::fprintf(stderr, "torch_npu: %s\n", line.c_str());
  std::fflush(stderr);
}

class Watchdog {
 public:
  // Looks at every thread. True: somebody is inside a driver.
  bool look(Clock::time_point now) {
    bool inside = false, lasts = false;
    for (size_t thread = 0; thread < thread_count(); ++thread) {
      Calls& calls = mutable_thread_calls(thread);
      const uint64_t turn = calls.turn.load(std::memory_order_acquire);
      if (!(turn & 1)) continue;
      inside = true;
      Wait& wait = waits_[thread];
      if (wait.turn != turn) wait = {turn, now, {}, Stage::kWaits, 0};
      if (now - wait.since < kLong && time_limit() <= 0) continue;
      lasts |= now - wait.since >= kLong;
      judge(calls, wait, now);
    }
    lasts ? take_interrupts() : give_interrupts_back();
    return inside;
  }

 private:
  void judge(Calls& calls, Wait& wait, Clock::time_point now) {
    const auto lasted = now - wait.since;
    const double limit = time_limit();
    if (wait.stage == Stage::kReset) {
      const bool again = interrupts() > wait.interrupts;
      const auto grace = std::max<Clock::duration>(
          kLeastGrace, std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit)));
      if (again || now - wait.reset_since > grace) give_up(calls, lasted);
      return;
    }
    if (limit > 0 && std::chrono::duration<double>(lasted).count() > limit)
      return end(calls, wait, now, "TORCH_NPU_TIMEOUT allows " + number(limit) + " s");
    if (interrupts() > wait.interrupts) {
      wait.interrupts = interrupts();
      if (wait.stage == Stage::kWarned) return end(calls, wait, now, "Ctrl-C came twice");
      wait.stage = Stage::kWarned;
      return say("interrupted in " + call_of(calls) + ", which has taken " + seconds(lasted) + "; " +
                 under_way(device(calls)) + ". It goes on as soon as the driver answers; Ctrl-C again drops the work");
    }
    if (lasted > kNotice && !noticed_) {
      noticed_ = true;
      say(call_of(calls) + " has taken " + seconds(lasted) + "; " + under_way(device(calls)) +
          ". Ctrl-C says more; TORCH_NPU_TIMEOUT=SECONDS ends such waits");
    }
  }

  // The call shall fail when it returns, and a reset makes it return.
  void end(Calls& calls, Wait& wait, Clock::time_point now, const std::string& why) {
    const Owner owner = owner_of(calls.object.load());
    calls.broken_text = call_of(calls) + " did not answer for " + seconds(now - wait.since) + " (" + why + "); " +
                        under_way(owner.device) + "; the device was reset, and what was queued is lost";
    calls.broken_turn.store(wait.turn, std::memory_order_release);
    wait.stage = Stage::kReset;
    wait.reset_since = now;
    wait.interrupts = interrupts();
    if (!owner.device) return;
    // In a thread of its own: a reset that hangs must not take the watchdog with it.
    std::thread([owner] { owner.driver->device_reset(owner.device); }).detach();
  }

  [[noreturn]] void give_up(const Calls& calls, Clock::duration lasted) {
    say(call_of(calls) + " has not answered for " + seconds(lasted) + ", nor did device_reset help; " +
        under_way(device(calls)) + ". A driver that does not return cannot be left: the process ends");
    std::abort();
  }

  static npu_device* device(const Calls& calls) { return owner_of(calls.object.load()).device; }
  static int interrupts() { return g_has_interrupt ? g_interrupts.load() : 0; }
  static std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
  }

  std::array<Wait, kMostThreads> waits_{};
  bool noticed_ = false;
};

std::mutex g_mutex;
std::condition_variable g_changed;
bool g_started = false;

void run() {
  static auto* watchdog = new Watchdog;
  int idle = 0;
  for (;;) {
    idle = watchdog->look(Clock::now()) ? 0 : idle + 1;
    std::unique_lock lock(g_mutex);
    if (idle * kTick < kIdle) {
      g_changed.wait_for(lock, kTick);
      continue;
    }
    g_watchdog_sleeps.store(true);
    g_changed.wait_for(lock, kIdle, [] { return !g_watchdog_sleeps.load(); });
    g_watchdog_sleeps.store(false);
    idle = 0;
  }
}

void after_fork_in_child() {
  g_started = false;
  g_watchdog_sleeps = true;
  g_has_interrupt = false;
}

}  // namespace

void start_or_wake_watchdog() {
  std::lock_guard lock(g_mutex);
  g_watchdog_sleeps.store(false);
  if (g_started) return g_changed.notify_one();
  g_started = true;
  static const int forks = pthread_atfork(nullptr, nullptr, after_fork_in_child);
  (void)forks;
  // Signals go to threads that expect them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(run).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void set_time_limit(double limit) {
  g_limit = limit;
}
double time_limit() {
  return g_limit;
}

}  // namespace npu::guard
