#include "tools/driver_test/frame/apart.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>

#include "tools/driver_test/frame/flight.h"

namespace driver_test {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Child {
  size_t piece = 0;
  pid_t pid = 0;
  int pipe = -1;
  Flight* flight = nullptr;
  Clock::time_point start = Clock::now(), moved = start;
  uint64_t calls = 0;
  std::string message;
  bool hangs = false, said_all = false;
};

// What a child says: the numbers of its outcome in one line, then the text.
std::string packed(const Outcome& outcome) {
  return say(int{outcome.result}, " ", outcome.cases, " ", outcome.unsupported, "\n", outcome.why);
}

bool unpack(const std::string& message, Outcome* outcome) {
  const size_t line = message.find('\n');
  if (line == std::string::npos) return false;
  std::istringstream head(message.substr(0, line));
  int result = 0;
  head >> result >> outcome->cases >> outcome->unsupported;
  outcome->result = static_cast<Outcome::Result>(result);
  outcome->why = message.substr(line + 1);
  return true;
}

[[noreturn]] void be_child(const Piece& piece, int pipe, Flight* flight) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a suite that is ended takes its test along
  use_flight(flight);
  const std::string message = packed(piece.run());
  for (size_t done = 0; done < message.size();) {
    const ssize_t n = write(pipe, message.data() + done, message.size() - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  std::exit(0);  // with what stands at the end of a program: leak checks, coverage, a driver's own
}

Child start(const std::vector<Piece>& pieces, size_t number) {
  Child child;
  child.piece = number;
  child.flight = make_shared_flight();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("expected a pipe, got none");
  std::fflush(nullptr);  // or the child would print it once more
  child.pid = fork();
  if (child.pid < 0) throw std::runtime_error("expected a process for a test, got none");
  if (child.pid == 0) {
    close(ends[0]);
    be_child(pieces[number], ends[1], child.flight);
  }
  close(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  child.pipe = ends[0];
  return child;
}

void listen(Child& child) {
  char text[4096];
  ssize_t n = 0;
  while ((n = read(child.pipe, text, sizeof text)) > 0) child.message.append(text, static_cast<size_t>(n));
  child.said_all = n == 0;
}

// Until a child says something, or one that has said all may have ended.
void wait_for_news(const std::vector<Child>& running) {
  std::vector<pollfd> waits;
  for (const Child& child : running)
    if (!child.said_all) waits.push_back({child.pipe, POLLIN, 0});
  const bool ends = waits.size() < running.size();
  poll(waits.data(), waits.size(), ends ? 1 : 100);
}

// What is known of a child that did not end as it should.
std::string last_words(const Child& child, const std::string& what) {
  const std::string in_flight = child.flight->in_flight(), seed = child.flight->seed, known = child.flight->failure;
  return say(what, in_flight.empty() ? ", outside the driver's functions" : " in " + in_flight,
             seed.empty() ? "" : "\n  " + seed, known.empty() ? "" : "\n  before that: " + known);
}

Outcome outcome_of(const Child& child, int status, double limit) {
  Outcome outcome;
  const bool said = unpack(child.message, &outcome);
  outcome.seconds = since(child.start);
  std::string what;
  if (child.hangs) {
    what = say("the driver hangs: no call has returned for ", limit, " s,");
  } else if (WIFSIGNALED(status)) {
    what = say("the driver crashed (signal ", WTERMSIG(status), ", ", strsignal(WTERMSIG(status)), ")");
  } else if (WEXITSTATUS(status) != 0 || !said) {
    what = say("the process ended with status ", WEXITSTATUS(status));
  } else {
    return outcome;
  }
  if (said) what += say(", after the test had ended with ", result_name(outcome.result));
  outcome.result = child.hangs ? Outcome::kHang : Outcome::kCrash;
  outcome.why = last_words(child, what);
  return outcome;
}

}  // namespace

void run_apart(const std::vector<Piece>& pieces, const Apart& how) {
  std::vector<Child> running;
  size_t next = 0;
  bool stop = false;
  while (!running.empty() || (next < pieces.size() && !stop)) {
    while (!stop && next < pieces.size() && running.size() < static_cast<size_t>(how.jobs)) {
      how.started(next);
      running.push_back(start(pieces, next++));
    }
    wait_for_news(running);
    for (size_t i = 0; i < running.size();) {
      Child& child = running[i];
      listen(child);
      if (const uint64_t calls = child.flight->calls(); calls != child.calls)
        child.calls = calls, child.moved = Clock::now();
      if (!child.hangs && since(child.moved) > how.limit_seconds) child.hangs = kill(child.pid, SIGKILL) == 0;
      int status = 0;
      if (waitpid(child.pid, &status, WNOHANG) != child.pid) {
        i++;
        continue;
      }
      listen(child);
      stop |= how.ended(child.piece, outcome_of(child, status, how.limit_seconds));
      close(child.pipe);
      drop_shared_flight(child.flight);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

}  // namespace driver_test
