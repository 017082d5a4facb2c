/* Conversions between storage and compute types: docs/isa.md, "Conversions". CHIP: the load and store units. */
#ifndef PROGRAM_CONVERT_H
#define PROGRAM_CONVERT_H

#include "program/lanes.h"
#include "program/types.h"

/* Between two different compute types. */
void convert(int n, lanes* out, int to, const lanes* in, int from);
/* A constant or a parameter, at n points. */
void broadcast(int n, lanes* out, int type, npu_scalar scalar);

/* Storage type to the compute type that it is exact in, and back. `at` is element 0; element i of the block is the one
 * at offsets[i], or element i if there are no offsets. */
void widen(int n, lanes* out, int dtype, const char* at, const int64_t* offsets);
void narrow(int n, const lanes* in, int dtype, char* at, const int64_t* offsets);

/* The same from and to any compute type. */
void load_lanes(int n, lanes* out, int type, int dtype, const char* at, const int64_t* offsets);
void store_lanes(int n, const lanes* in, int type, int dtype, char* at, const int64_t* offsets);

#endif
