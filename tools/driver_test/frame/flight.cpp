#include "tools/driver_test/frame/flight.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <stdexcept>

namespace driver_test {

namespace {

Flight own;  // of a process that shares with nobody
Flight* current = &own;
int log_file = -1;

template <size_t Size>
void put(char (&to)[Size], const std::string& text) {
  const size_t length = std::min(text.size(), Size - 1);
  std::memcpy(to, text.data(), length);
  to[length] = 0;
}

// A thread's slot for as long as the thread lives. When all are taken, late threads share the last.
struct Seat {
  FlightSlot* slot = nullptr;
  Flight* of = nullptr;
  ~Seat() { leave(); }
  void leave() {
    if (slot) slot->taken.store(false, std::memory_order_relaxed);
    slot = nullptr;
  }
  FlightSlot& get() {
    if (of != current) leave(), of = current;
    for (int i = 0; !slot && i < Flight::kSlots; i++)
      if (!current->slots[i].taken.exchange(true, std::memory_order_relaxed)) slot = &current->slots[i];
    return slot ? *slot : current->slots[Flight::kSlots - 1];
  }
};

FlightSlot& mine() {
  static thread_local Seat seat;
  return seat.get();
}

}  // namespace

uint64_t Flight::calls() const {
  uint64_t sum = 0;
  for (const FlightSlot& slot : slots) sum += slot.calls.load(std::memory_order_relaxed);
  return sum;
}

std::string Flight::in_flight() const {
  std::string out;
  for (const FlightSlot& slot : slots) {
    if (!slot.call[0]) continue;
    out += (out.empty() ? "" : "; and ") + std::string(slot.call);
    if (slot.command[0])
      out += (std::strcmp(slot.call, "submit") == 0 ? " of " : ", the last command was ") + std::string(slot.command);
  }
  return out;
}

Flight& flight() {
  return *current;
}

Flight* make_shared_flight() {
  void* at = mmap(nullptr, sizeof(Flight), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  return new (at) Flight{};
}

void drop_shared_flight(Flight* flight) {
  munmap(flight, sizeof *flight);
}

void use_flight(Flight* flight) {
  current = flight;
}

void fly_seed(const std::string& text) {
  put(current->seed, text);
  log_flight("  " + text);
}

void fly_command(const std::string& text) {
  put(mine().command, text);
  log_flight("    " + text);
}

void fly_failure(const std::string& text) {
  put(current->failure, text);
}

InCall::InCall(const char* name) {
  put(mine().call, name);
}

InCall::~InCall() {
  FlightSlot& slot = mine();
  slot.call[0] = 0;
  slot.calls.fetch_add(1, std::memory_order_relaxed);
}

void log_flight_to(const std::string& path) {
  log_file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (log_file < 0) throw std::runtime_error("expected to write " + path + ", got '" + std::strerror(errno) + "'");
}

void log_flight(const std::string& line) {
  if (log_file < 0) return;
  const std::string text = line + "\n";
  if (write(log_file, text.data(), text.size()) >= 0) fdatasync(log_file);
}

bool flight_is_logged() {
  return log_file >= 0;
}

}  // namespace driver_test
