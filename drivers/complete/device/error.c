/* Errors: after one, error_text on the same thread says what happened. */
#include <stdarg.h>
#include <stdio.h>

#include "device/driver.h"

static _Thread_local char last_error[512] = "no error";

npu_status fail(npu_status status, const char* format, ...) {
  char text[sizeof last_error]; /* an argument may be the last error itself */
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  snprintf(last_error, sizeof last_error, "%s", text);
  return status;
}

const char* error_text(void) { return last_error; }
