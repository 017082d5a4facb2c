// The instructions that touch memory or change types, one tile at a time. Internal to the interpreter (exec.cpp).
#pragma once
#include "drivers/cmodel/exec.h"

namespace cmodel {

void load(Frame& frame, int at, const Tile& tile);
void load_at(Frame& frame, int at, const Tile& tile);
void store(Frame& frame, int at, const Tile& tile);
void store_at(Frame& frame, int at, const Tile& tile);
void index(Frame& frame, int at, const Tile& tile);
void load_acc(Frame& frame, int at, const Tile& tile);
void cast(Frame& frame, int at, const Tile& tile);
void check_index(Frame& frame, int at, const Tile& tile);

// Where the kernel of `op` may write because its value is stored there next, or null.
char* direct_target(Frame& frame, const Op& op, const Tile& tile);

}  // namespace cmodel
