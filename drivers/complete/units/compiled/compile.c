/* From text to a function: in this process, on disk, by the compiler. All are found by what the text says. */
#include <dlfcn.h>
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "units/compiled/compiled.h"

extern char** environ;

/* Kernels of this process, for as long as it lives. */
typedef struct made {
  struct made* next;
  uint64_t hash;
  kernel_function* run; /* NULL: it could not be had */
} made;
static made* all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* FNV-1a, 64 bits. */
static uint64_t hash_of(const char* text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (; *text; text++) hash = (hash ^ (uint8_t)*text) * 0x100000001b3ull;
  return hash;
}

/* A folder of this user's own. Returns whether it is there. */
static int cache_folder(char* out, size_t room) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (cache && *cache)
    snprintf(out, room, "%s", cache);
  else
    snprintf(out, room, "%s/.cache", home && *home ? home : "/tmp");
  mkdir(out, 0700);
  strncat(out, "/npu-kernels", room - strlen(out) - 1);
  return mkdir(out, 0700) == 0 || errno == EEXIST;
}

/* Runs a program and waits for it. A library that was loaded before this process (a sanitizer) is not for the program.
 */
static int run(char* const* arguments) {
  char* variables[1024];
  int count = 0;
  for (char** e = environ; *e && count < 1023; e++)
    if (strncmp(*e, "LD_PRELOAD=", 11) != 0) variables[count++] = *e;
  variables[count] = NULL;
  pid_t child;
  int status = -1;
  if (posix_spawnp(&child, arguments[0], NULL, NULL, arguments, variables) != 0) return 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* CHIP: put your compiler here. Written beside its place and moved there, so that nobody loads half of it. */
static int build(const char* text, const char* library) {
  char source[600], fresh[600];
  snprintf(source, sizeof source, "%s.%d.c", library, (int)getpid());
  snprintf(fresh, sizeof fresh, "%s.%d", library, (int)getpid());
  FILE* file = fopen(source, "w");
  if (!file) return 0;
  const int is_written = fputs(text, file) >= 0;
  const int is_closed = fclose(file) == 0;
  char* const command[] = {"cc",
                           "-std=gnu11",
                           "-O3",
                           "-march=native",
                           "-ffp-contract=off",
                           "-fno-math-errno",
                           "-shared",
                           "-fPIC",
                           "-w",
                           source,
                           "-o",
                           fresh,
                           "-lm",
                           NULL};
  const int is_built = is_written && is_closed && run(command) && rename(fresh, library) == 0;
  if (is_built) /* for people: what the library was made from */
    snprintf(fresh, sizeof fresh, "%s.c", library);
  if (!is_built || rename(source, fresh) != 0) unlink(source);
  return is_built;
}

static kernel_function* load(const char* text, uint64_t hash) {
  char library[512];
  if (!cache_folder(library, sizeof library - 64)) return NULL;
  const size_t used = strlen(library);
  snprintf(library + used, sizeof library - used, "/%016" PRIx64 ".so", hash);
  void* handle = access(library, R_OK) == 0 ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!handle && build(text, library)) handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    fprintf(stderr, "libnpu: expected `cc` to make a kernel in %s, got none: the program is interpreted\n", library);
    return NULL;
  }
  kernel_function* run;
  *(void**)&run = dlsym(handle, "kernel");
  return run;
}

kernel_function* compile_kernel(const char* text) {
  const uint64_t hash = hash_of(text);
  pthread_mutex_lock(&lock); /* also while it compiles: whoever wants the same kernel waits for it */
  made* m = all;
  while (m && m->hash != hash) m = m->next;
  if (!m && (m = calloc(1, sizeof *m))) {
    *m = (made){.next = all, .hash = hash, .run = load(text, hash)};
    all = m;
  }
  kernel_function* found = m ? m->run : NULL;
  pthread_mutex_unlock(&lock);
  return found;
}
