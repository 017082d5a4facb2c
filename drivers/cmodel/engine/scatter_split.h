// Whether the stores of a SCATTER stay apart: then threads can share out its points and keep the order that counts.
#pragma once
#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/plan/space.h"

namespace cmodel {

// A dimension of the space such that points that differ there never write to one place, whatever they load; kNone if
// there is none. Follows the program's integers as intervals and multiples: a coordinate, a checked index, what is
// clamped or reflected is bounded; what is multiplied by a stride falls on multiples of it.
int split_dimension(const Job& job, const Plan& plan, const Space& space);

}  // namespace cmodel
