/* The driver that docs/driver-guide.md builds step by step: the template with a real queue and two native commands. The
 * guide quotes the regions between "guide: NAME" and "guide: end"; tests/docs/test_driver_guide.py keeps the two equal.
 * In your own copy of the template you would edit in place; here the template stays in one piece, so that it is tested
 * once. */
#define npu_driver_get template_driver_get
#include "drivers/template/template.c"
#undef npu_driver_get

/* guide: queue types */
typedef struct queue queue;

typedef struct mark { /* a place in a queue: what an event recorded */
  int refs, reached;
  uint64_t number; /* of the job */
  double time;
  queue* queue;
} mark;

typedef struct job { /* one piece of work, with copies of all that it needs */
  struct job* next;
  npu_status (*run)(struct job* job, char* error, size_t room);
  char *to, *from, *other;
  uint64_t size;
  int64_t count[3], stride[6];
  mark* mark;
} job;

struct queue {
  int refs, closing;
  npu_device* device;
  queue* next; /* in `queues` */
  pthread_t worker;
  job *first, **last;
  uint64_t given, done; /* jobs */
  npu_status failure;   /* the first that was not reported yet */
  uint64_t failed;      /* its number */
  char text[256];
};

typedef struct chip_stream {
  npu_stream base;
  queue* queue;
} chip_stream;

typedef struct chip_event {
  npu_event base;
  mark* mark; /* of the last record */
} chip_event;

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER; /* guards all queues and marks */
static pthread_cond_t queue_moved = PTHREAD_COND_INITIALIZER;  /* a job came or was done */
static queue* queues;
/* guide: end */

static void unref_queue(queue* q) {
  if (--q->refs == 0) free(q);
}

static void unref_mark(mark* m) {
  if (!m || --m->refs > 0) return;
  unref_queue(m->queue);
  free(m);
}

/* guide: worker */
static void* work(void* argument) {
  queue* q = argument;
  pthread_mutex_lock(&queue_lock);
  for (;;) {
    while (!q->first && !q->closing) pthread_cond_wait(&queue_moved, &queue_lock);
    if (!q->first) break;
    job* j = q->first;
    if (!(q->first = j->next)) q->last = &q->first;
    pthread_mutex_unlock(&queue_lock);
    char error[256];
    npu_status status = j->run(j, error, sizeof error); /* CHIP: ring the doorbell, wait for the interrupt */
    pthread_mutex_lock(&queue_lock);
    q->done++;
    if (status != NPU_OK && q->failure == NPU_OK) {
      q->failure = status, q->failed = q->done;
      memcpy(q->text, error, sizeof error);
    }
    pthread_cond_broadcast(&queue_moved);
    free(j);
  }
  pthread_mutex_unlock(&queue_lock);
  return NULL;
}

/* The lock is held. */
static void give(queue* q, const job* work) {
  job* j = malloc(sizeof *j);
  if (!j) abort(); /* a few bytes of host memory: nothing sensible is left to do */
  *j = *work;
  j->next = NULL;
  *q->last = j, q->last = &j->next;
  q->given++;
  pthread_cond_broadcast(&queue_moved);
}

static void wait_for(queue* q, uint64_t number) {
  while (q->done < number) pthread_cond_wait(&queue_moved, &queue_lock);
}

/* Gives away the failure of a job up to `number`: it is reported once. */
static npu_status report(queue* q, uint64_t number) {
  npu_status status = q->failure;
  if (status == NPU_OK || q->failed > number) return NPU_OK;
  q->failure = NPU_OK;
  return fail(status, "%s", q->text);
}
/* guide: end */

/* guide: streams */
static npu_status chip_stream_create(npu_device* device, int32_t priority, npu_stream** out) {
  (void)priority;
  queue* q = calloc(1, sizeof *q);
  chip_stream* s = q ? (chip_stream*)make(device, sizeof *s) : NULL;
  if (!s) return free(q), NPU_ERROR_MEMORY;
  q->refs = 1, q->device = device, q->last = &q->first;
  s->queue = q;
  if (pthread_create(&q->worker, NULL, work, q) != 0) {
    free(q), stream_destroy(&s->base);
    return fail(NPU_ERROR_MEMORY, "stream_create: expected a worker thread, got none");
  }
  pthread_mutex_lock(&queue_lock);
  q->next = queues, queues = q;
  pthread_mutex_unlock(&queue_lock);
  return *out = &s->base, NPU_OK;
}

static void stop_queue(queue* q) {
  pthread_mutex_lock(&queue_lock);
  q->closing = 1;
  for (queue** at = &queues; *at; at = &(*at)->next)
    if (*at == q) {
      *at = q->next;
      break;
    }
  pthread_cond_broadcast(&queue_moved);
  pthread_mutex_unlock(&queue_lock);
  pthread_join(q->worker, NULL); /* it leaves when its queue is empty */
  pthread_mutex_lock(&queue_lock);
  unref_queue(q);
  pthread_mutex_unlock(&queue_lock);
}

static void chip_stream_destroy(npu_stream* stream) {
  stop_queue(((chip_stream*)stream)->queue);
  stream_destroy(stream);
}

static npu_status chip_stream_query(npu_stream* stream) {
  queue* q = ((chip_stream*)stream)->queue;
  pthread_mutex_lock(&queue_lock);
  npu_status status = q->done == q->given ? NPU_OK : NPU_NOT_READY;
  pthread_mutex_unlock(&queue_lock);
  return status;
}

static npu_status chip_stream_synchronize(npu_stream* stream) {
  queue* q = ((chip_stream*)stream)->queue;
  pthread_mutex_lock(&queue_lock);
  uint64_t number = q->given;
  wait_for(q, number);
  npu_status status = report(q, number);
  pthread_mutex_unlock(&queue_lock);
  return status;
}
/* guide: end */

/* Waits for every queue of the device. Reports one failure, the others stay; `quiet` drops all of them. */
static npu_status drain(npu_device* device, int quiet) {
  npu_status first = NPU_OK;
  pthread_mutex_lock(&queue_lock);
  for (queue* q = queues; q;) {
    if (q->device == device && q->done < q->given) {
      pthread_cond_wait(&queue_moved, &queue_lock);
      q = queues; /* the list may have changed */
      continue;
    }
    q = q->next;
  }
  for (queue* q = queues; q; q = q->next)
    if (q->device == device && q->failure != NPU_OK && first == NPU_OK) {
      if (!quiet) first = fail(q->failure, "%s", q->text);
      q->failure = NPU_OK;
    }
  pthread_mutex_unlock(&queue_lock);
  return first;
}

static npu_status chip_device_synchronize(npu_device* device) { return drain(device, 0); }
static npu_status chip_device_reset(npu_device* device) { return drain(device, 1); }

/* guide: events */
static npu_status run_record(job* j, char* error, size_t room) {
  (void)error, (void)room;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  pthread_mutex_lock(&queue_lock);
  j->mark->time = now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
  j->mark->reached = 1;
  unref_mark(j->mark);
  pthread_mutex_unlock(&queue_lock);
  return NPU_OK;
}

static npu_status run_wait(job* j, char* error, size_t room) {
  (void)error, (void)room;
  pthread_mutex_lock(&queue_lock);
  while (!j->mark->reached) pthread_cond_wait(&queue_moved, &queue_lock);
  unref_mark(j->mark); /* the event itself may be gone by now */
  pthread_mutex_unlock(&queue_lock);
  return NPU_OK;
}

static npu_status chip_event_record(npu_event* event, npu_stream* stream) {
  queue* q = ((chip_stream*)stream)->queue;
  chip_event* e = (chip_event*)event;
  mark* m = calloc(1, sizeof *m);
  if (!m) return fail(NPU_ERROR_MEMORY, "event_record: expected host memory, got none");
  pthread_mutex_lock(&queue_lock);
  m->refs = 2, m->queue = q, m->number = q->given + 1, q->refs++; /* the event's and the job's */
  unref_mark(e->mark);
  e->mark = m;
  give(q, &(job){.run = run_record, .mark = m});
  pthread_mutex_unlock(&queue_lock);
  return NPU_OK;
}

static npu_status chip_stream_wait_event(npu_stream* stream, npu_event* event) {
  mark* m = NULL;
  pthread_mutex_lock(&queue_lock);
  if ((m = ((chip_event*)event)->mark)) {
    m->refs++;
    give(((chip_stream*)stream)->queue, &(job){.run = run_wait, .mark = m});
  }
  pthread_mutex_unlock(&queue_lock);
  return NPU_OK;
}

static npu_status chip_event_synchronize(npu_event* event) {
  npu_status status = NPU_OK;
  pthread_mutex_lock(&queue_lock);
  mark* m = ((chip_event*)event)->mark;
  if (m) {
    m->refs++; /* another thread may record again meanwhile */
    while (!m->reached) pthread_cond_wait(&queue_moved, &queue_lock);
    status = report(m->queue, m->number);
    unref_mark(m);
  }
  pthread_mutex_unlock(&queue_lock);
  return status;
}
/* guide: end */

static npu_status chip_event_create(npu_device* device, uint32_t flags, npu_event** out) {
  chip_event* e = (chip_event*)make(device, sizeof *e);
  if (!e) return NPU_ERROR_MEMORY;
  e->base.flags = flags;
  e->base.time = 0;
  e->mark = NULL;
  return *out = &e->base, NPU_OK;
}

static void chip_event_destroy(npu_event* event) {
  pthread_mutex_lock(&queue_lock);
  unref_mark(((chip_event*)event)->mark);
  pthread_mutex_unlock(&queue_lock);
  event_destroy(event);
}

static npu_status chip_event_query(npu_event* event) {
  pthread_mutex_lock(&queue_lock);
  mark* m = ((chip_event*)event)->mark;
  npu_status status = !m || m->reached ? NPU_OK : NPU_NOT_READY;
  pthread_mutex_unlock(&queue_lock);
  return status;
}

static npu_status chip_event_elapsed(npu_event* start, npu_event* end, double* out) {
  pthread_mutex_lock(&queue_lock);
  mark *a = ((chip_event*)start)->mark, *b = ((chip_event*)end)->mark;
  int valid = (start->flags & end->flags & NPU_EVENT_TIMING) && a && b && a->reached && b->reached;
  if (valid) *out = b->time - a->time;
  pthread_mutex_unlock(&queue_lock);
  return valid ? NPU_OK : fail(NPU_ERROR_INVALID, "event_elapsed: expected two reached events with NPU_EVENT_TIMING");
}

static void chip_device_close(npu_device* device) {
  drain(device, 1);
  for (queue *q = queues, *next; q; q = next) {
    next = q->next;
    if (q->device == device) stop_queue(q);
  }
  device_close(device);
}

/* guide: copies */
static npu_status run_move(job* j, char* error, size_t room) {
  (void)error, (void)room;
  memmove(j->to, j->from, j->size); /* CHIP: the DMA engine */
  return NPU_OK;
}

static npu_status chip_copy(const char* what, npu_stream* stream, void* to, npu_addr dst, const void* from,
                            npu_addr src, uint64_t size, int wait) {
  npu_device* device = stream->node.device;
  if (size == 0) return NPU_OK;
  pthread_mutex_lock(&device->lock);
  if (!to) to = find(device, dst, size);
  if (!from) from = find(device, src, size);
  pthread_mutex_unlock(&device->lock);
  if (!to || !from)
    return fail(NPU_ERROR_ADDRESS, "%s: expected %" PRIu64 " bytes in one live allocation, got 0x%" PRIx64, what, size,
                to ? src : dst);
  queue* q = ((chip_stream*)stream)->queue;
  pthread_mutex_lock(&queue_lock);
  give(q, &(job){.run = run_move, .to = to, .from = (char*)from, .size = size});
  if (wait) wait_for(q, q->given); /* the host's memory is the caller's again when we return */
  pthread_mutex_unlock(&queue_lock);
  return NPU_OK;
}
/* guide: end */

static npu_status chip_copy_to_device(npu_stream* s, npu_addr dst, const void* src, uint64_t size, uint32_t flags) {
  return chip_copy("copy_to_device", s, NULL, dst, src, 0, size, !(flags & NPU_COPY_PINNED));
}

static npu_status chip_copy_to_host(npu_stream* s, void* dst, npu_addr src, uint64_t size, uint32_t flags) {
  return chip_copy("copy_to_host", s, dst, 0, NULL, src, size, !(flags & NPU_COPY_PINNED));
}

static npu_status chip_copy_on_device(npu_stream* s, npu_addr dst, npu_addr src, uint64_t size) {
  return chip_copy("copy_on_device", s, NULL, dst, NULL, src, size, 0);
}

/* guide: program */
struct npu_program {
  node node;
  uint32_t a, b, out; /* operands of the one program we know: out = a + b in F32 */
};

static npu_status chip_program_create(npu_device* device, const npu_program_desc* desc, npu_program** out) {
  static const uint8_t add[] = {NPU_OP_SEGMENT, NPU_OP_LOAD, NPU_OP_LOAD, NPU_OP_ADD, NPU_OP_STORE};
  const npu_instr* in = desc->instrs;
  int known = desc->instr_count == 5;
  for (uint32_t i = 0; known && i < 5; i++) known = in[i].op == add[i] && in[i].mask == NPU_NO_VALUE && in[i].zero == 0;
  known = known && in[0].imm == NPU_SEGMENT_EACH && in[1].dtype == NPU_F32 && in[2].dtype == NPU_F32 &&
          in[3].dtype == NPU_F32 && ((in[3].a == 1 && in[3].b == 2) || (in[3].a == 2 && in[3].b == 1)) && in[4].a == 3;
  if (!known) return fail(NPU_UNSUPPORTED, "program '%s': this chip knows add in F32 only", desc->name);
  uint32_t count = desc->operand_count;
  if (count > NPU_MAX_OPERANDS || in[1].imm >= count || in[2].imm >= count || in[4].imm >= count)
    return fail(NPU_ERROR_INVALID, "program '%s': expected operands below operand_count", desc->name);
  npu_program* made = (npu_program*)make(device, sizeof *made);
  if (!made) return NPU_ERROR_MEMORY;
  made->a = in[1].imm, made->b = in[2].imm, made->out = in[4].imm;
  return *out = made, NPU_OK;
}

static void chip_program_destroy(npu_program* program) {
  if (program) drop(program->node.device, &program->node.device->objects, program->node.key);
}
/* guide: end */

/* guide: supports */
static int is_f32(const npu_operand* operand) { return operand->dtype == NPU_F32 && operand->flags == 0; }

static npu_status chip_supports(npu_device* device, const npu_command* command) {
  (void)device;
  const npu_operand* o = command->operands;
  const npu_program* p = command->program;
  if (command->struct_size >= sizeof *command && o) {
    if (command->kind == NPU_MAP && command->rank == 1 && command->inner_rank == 0 && p &&
        p->a < command->operand_count && p->b < command->operand_count && p->out < command->operand_count &&
        is_f32(&o[p->a]) && is_f32(&o[p->b]) && is_f32(&o[p->out]))
      return NPU_OK;
    if (command->kind == NPU_MATMUL && command->rank == 2 && command->operand_count == 3 && !p &&
        command->u.matmul.acc_dtype == NPU_F32 && is_f32(&o[0]) && is_f32(&o[1]) && is_f32(&o[2]))
      return NPU_OK;
  }
  return fail(NPU_UNSUPPORTED, "command kind %d in this form: this chip has not got it", command->kind);
}
/* guide: end */

/* guide: address */
/* Where the operand's elements lie, if all of `count[0] x count[1]` are inside one live allocation. */
static char* locate(npu_device* device, const npu_operand* o, const int64_t* count, int rank) {
  int64_t low = 0, high = 0, reach = 0;
  for (int d = 0; d < rank; d++) {
    if (__builtin_mul_overflow(o->stride[d], (count[d] - 1) * 4, &reach) ||
        __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high))
      return NULL;
  }
  pthread_mutex_lock(&device->lock);
  char* memory = find(device, o->addr + (uint64_t)low, (uint64_t)high - (uint64_t)low + 4);
  pthread_mutex_unlock(&device->lock);
  return memory ? memory - low : NULL;
}
/* guide: end */

/* guide: kernels */
static npu_status run_add(job* j, char* error, size_t room) {
  (void)error, (void)room;
  const float *a = (const float*)j->from, *b = (const float*)j->other;
  float* out = (float*)j->to;
  for (int64_t i = 0; i < j->count[0]; i++) out[i] = a[i] + b[i]; /* CHIP: the vector unit */
  return NPU_OK;
}

static npu_status run_matmul(job* j, char* error, size_t room) {
  (void)error, (void)room;
  const float *a = (const float*)j->from, *b = (const float*)j->other;
  float* out = (float*)j->to;
  const int64_t* s = j->stride;
  for (int64_t m = 0; m < j->count[0]; m++)
    for (int64_t n = 0; n < j->count[1]; n++) {
      float sum = 0;
      for (int64_t k = 0; k < j->count[2]; k++) sum += a[m * s[0] + k * s[1]] * b[k * s[2] + n * s[3]];
      out[m * s[4] + n * s[5]] = sum; /* CHIP: the matrix engine */
    }
  return NPU_OK;
}
/* guide: end */

/* guide: submit */
static npu_status chip_submit(npu_stream* stream, const npu_command* command) {
  npu_device* device = stream->node.device;
  npu_status status = chip_supports(device, command);
  if (status != NPU_OK) return status;
  if (command->operand_count > NPU_MAX_OPERANDS)
    return fail(NPU_ERROR_INVALID, "expected at most %d operands, got %u", NPU_MAX_OPERANDS, command->operand_count);
  const npu_operand* o = command->operands;
  const int matmul = command->kind == NPU_MATMUL;
  const npu_operand *a = matmul ? &o[0] : &o[command->program->a], *b = matmul ? &o[1] : &o[command->program->b];
  const npu_operand* out = matmul ? &o[2] : &o[command->program->out];
  const char* name = matmul ? "MATMUL" : "MAP";
  int64_t m = command->size[0], n = matmul ? command->size[1] : 1, k = matmul ? command->u.matmul.k : 1;
  if (m < 0 || n < 0 || k < 0)
    return fail(NPU_ERROR_INVALID, "%s (%s): expected sizes of 0 or more", name, command->label);
  if (m == 0 || n == 0) return NPU_OK;
  if (m >> 40 || n >> 40 || k >> 40 || k == 0) return fail(NPU_UNSUPPORTED, "%s of this size: not on this chip", name);
  job j = {.run = matmul ? run_matmul : run_add, .count = {m, n, k}};
  const npu_operand* operands[] = {a, b, out};
  const int64_t counts[3][2] = {{m, matmul ? k : 1}, {matmul ? k : m, n}, {m, n}};
  char** places[] = {&j.from, &j.other, &j.to};
  for (int i = 0; i < 3; i++) {
    *places[i] = locate(device, operands[i], counts[i], command->rank);
    if (!*places[i])
      return fail(NPU_ERROR_ADDRESS, "%s (%s): expected a live allocation around operand at 0x%" PRIx64, name,
                  command->label, operands[i]->addr);
    if (!matmul && m > 1 && operands[i]->stride[0] != 1)
      return fail(NPU_UNSUPPORTED, "MAP with stride %" PRId64 ": this chip adds contiguous memory only",
                  operands[i]->stride[0]);
    if ((uintptr_t)*places[i] % 4) return fail(NPU_UNSUPPORTED, "%s of unaligned memory: not on this chip", name);
    j.stride[2 * i] = operands[i]->stride[0], j.stride[2 * i + 1] = operands[i]->stride[1];
  }
  pthread_mutex_lock(&queue_lock);
  give(((chip_stream*)stream)->queue, &j);
  pthread_mutex_unlock(&queue_lock);
  return NPU_OK;
}
/* guide: end */

static npu_status chip_device_properties(npu_device* device, npu_properties* out) {
  npu_properties p = {.commands = 1u << NPU_MAP | 1u << NPU_MATMUL, .name = "My chip", .vendor = "guide", .units = 1};
  p.struct_size = out->struct_size, p.total_memory = device->total, p.alignment = ALIGNMENT;
  memcpy(out, &p, p.struct_size < sizeof p ? p.struct_size : sizeof p);
  return NPU_OK;
}

NPU_EXPORT const npu_driver* npu_driver_get(void) {
  static npu_driver driver;
  static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&once);
  driver = *template_driver_get();
  driver.name = "mychip";
#define OWN(function) driver.function = chip_##function
  OWN(device_close), OWN(device_properties), OWN(device_synchronize), OWN(device_reset);
  OWN(copy_to_device), OWN(copy_to_host), OWN(copy_on_device);
  OWN(stream_create), OWN(stream_destroy), OWN(stream_query), OWN(stream_synchronize), OWN(stream_wait_event);
  OWN(event_create), OWN(event_destroy), OWN(event_record), OWN(event_query), OWN(event_synchronize);
  OWN(event_elapsed), OWN(program_create), OWN(program_destroy), OWN(supports), OWN(submit);
  pthread_mutex_unlock(&once);
  return &driver;
}
