// Work in processes of their own: one that crashes, or does not get on, costs itself only.
#pragma once
#include <functional>

#include "tools/driver_test/frame/outcome.h"

namespace driver_test {

// One piece of work. `run` is called in the child.
struct Piece {
  std::string name;
  std::function<Outcome()> run;
};

struct Apart {
  int jobs = 1;
  // A child whose calls into the driver all take longer than this is ended: nothing has returned for so long.
  double limit_seconds = 120;
  std::function<void(size_t)> started = [](size_t) {};
  // Of piece number ...; true: no further piece is started.
  std::function<bool(size_t, const Outcome&)> ended = [](size_t, const Outcome&) { return false; };
};

// Returns when every piece that was started has ended. The calling process has no threads.
void run_apart(const std::vector<Piece>& pieces, const Apart& how);

}  // namespace driver_test
