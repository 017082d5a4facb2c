// What the driver is asked for right now, written down before the call in memory that outlives the process: when a test
// crashes, hangs or takes the process with it, whoever started it reads here what was in flight.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

namespace driver_test {

// One thread's: no lock and no order between threads, so that a race in a driver stays one under ThreadSanitizer.
struct FlightSlot {
  std::atomic<bool> taken;
  std::atomic<uint64_t> calls;  // finished; a thread that waits for the driver does not count on
  char call[48];                // function of the contract that has not returned; empty: none
  char command[3000];           // the command that was given last
};

struct Flight {
  static constexpr int kSlots = 16;
  FlightSlot slots[kSlots];
  char seed[128];       // "--seed 1 --case 17": of the random command that runs
  char failure[16000];  // what is already known to be wrong, while it is being made smaller

  uint64_t calls() const;
  std::string in_flight() const;  // "submit of MATMUL ..." of every thread that has not returned; "" if there is none
};

// The flight of this process. Before share_flight() gives it one, it is memory of the process itself.
Flight& flight();
// New memory that a child made by fork() shares.
Flight* make_shared_flight();
void drop_shared_flight(Flight* flight);
void use_flight(Flight* flight);

void fly_seed(const std::string& text);
void fly_command(const std::string& text);
void fly_failure(const std::string& text);

// While it lives, this thread is inside a function of the driver.
class InCall {
 public:
  explicit InCall(const char* name);
  ~InCall();
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;
};

// Every test, seed and command is also appended there, and on the disk before the driver gets it: for a driver that
// takes the machine down.
void log_flight_to(const std::string& path);  // throws std::runtime_error
void log_flight(const std::string& line);
bool flight_is_logged();

}  // namespace driver_test
