/* The text that stands in front of every kernel, as part of the library: it needs no files when it runs. */
#include "program/half.h" /* both are compiled here too, so that a mistake in them is seen at once */
#include "units/compiled/compiled.h"

/* SOURCES: the folder of this driver's sources, from the Makefile. */
__asm__(
    ".pushsection .rodata\n"
    ".global kernel_prelude\n"
    ".hidden kernel_prelude\n"
    "kernel_prelude:\n"
    ".incbin \"" SOURCES
    "/program/half.h\"\n"
    ".incbin \"" SOURCES
    "/units/compiled/kernel.h\"\n"
    ".byte 0\n"
    ".popsection\n");
