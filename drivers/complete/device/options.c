/* Instances: the options behind the colon of TORCH_NPU_DRIVER=<name>:memory=512M:devices=2. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/driver.h"

const option device_options[] = {
    {"memory", 1, 1ull << 42, 8ull << 30, offsetof(npu_instance, memory), 1},
    {"devices", 1, MAX_DEVICES, 1, offsetof(npu_instance, devices), 0},
    {0},
};

static const option* const tables[] = {device_options, queue_options, unit_options};
enum { TABLES = sizeof tables / sizeof *tables };

static uint64_t* field(npu_instance* instance, const option* known) {
  return (uint64_t*)((char*)instance + known->field);
}

static int shift_of(char letter) { return letter == 'K' ? 10 : letter == 'M' ? 20 : letter == 'G' ? 30 : 0; }

/* Reads "name=number" at `text` into `out`. Returns what stands behind it, or NULL if this is another option. */
static const char* read_option(const option* known, const char* text, npu_instance* out) {
  const size_t length = strlen(known->name);
  if (strncmp(text, known->name, length) != 0 || text[length] != '=') return NULL;
  char* end;
  const uint64_t number = strtoull(text + length + 1, &end, 10);
  if (end == text + length + 1) return NULL;
  const int shift = known->scaled ? shift_of(*end) : 0;
  if (shift != 0) end++;
  if (number < known->least || number > known->most >> shift || (*end != ':' && *end != '\0')) return NULL;
  *field(out, known) = number << shift;
  return *end == ':' ? end + 1 : end;
}

static npu_status unknown_option(const char* text) {
  char known[256] = "";
  for (int t = 0; t < TABLES; t++)
    for (const option* o = tables[t]; o->name; o++) {
      const size_t used = strlen(known);
      snprintf(known + used, sizeof known - used, "%s%s=%" PRIu64 "..%" PRIu64, used ? ", " : "", o->name, o->least,
               o->most);
    }
  return fail(NPU_ERROR_INVALID, "expected options of %s, got '%s'", known, text);
}

npu_status driver_open(const char* options, npu_instance** out) {
  npu_instance read = {0};
  for (int t = 0; t < TABLES; t++)
    for (const option* o = tables[t]; o->name; o++) *field(&read, o) = o->initial;
  for (const char *at = options, *next; *at != '\0'; at = next) {
    next = NULL;
    for (int t = 0; t < TABLES; t++)
      for (const option* o = tables[t]; o->name && !next; o++) next = read_option(o, at, &read);
    if (!next) return unknown_option(at);
  }
  read.memory = round_up(read.memory, ALIGNMENT);
  npu_instance* made = malloc(sizeof *made);
  if (!made) return fail(NPU_ERROR_MEMORY, "open: expected host memory, got none");
  *made = read;
  *out = made;
  return NPU_OK;
}

void driver_close(npu_instance* instance) { free(instance); }

npu_status device_count(npu_instance* instance, uint32_t* out) {
  *out = (uint32_t)instance->devices; /* CHIP: what the bus shows */
  return NPU_OK;
}
