/* Functions that a chip may approximate. CHIP: yours, one row at a time. */
#ifndef PROGRAM_FUNCTIONS_H
#define PROGRAM_FUNCTIONS_H

#include <stdint.h>

/* The function of an instruction; exactly one of the two is there, or none. */
typedef struct function {
  double (*one)(double);
  double (*two)(double, double);
} function;
const function* function_of(int op);

double digamma(double x);
double erfinv(double x);

/* Philox4x32-10: word `word` of the block that belongs to a counter and a key. */
uint32_t philox(uint64_t seed, uint64_t offset, uint64_t subsequence, int word);

#endif
