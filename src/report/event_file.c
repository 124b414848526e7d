/* See event_file.h. */
#include "src/report/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/report/append_file.h"
#include "src/report/event_record.h"

enum {
    HOST_BYTES = 256,
    MAX_COUNTER = 10000 /* open_file() tries at most this many file names */
};

struct fsdp_event_file {
    char *path;
    int fd;
    fsdp_record_table table;
};

/* ---- protobuf ---- */

static void put_varint(fsdp_str *out, uint64_t value)
{
    unsigned char bytes[10];
    size_t n = 0;
    do {
        bytes[n] = (unsigned char)((value & 127) | (value > 127 ? 128 : 0));
        value >>= 7;
        n++;
    } while (value);
    fsdp_str_append(out, (const char *)bytes, n);
}

static void put_key(fsdp_str *out, int field, int wire_type)
{
    put_varint(out, (uint64_t)field << 3 | (uint64_t)wire_type);
}

static void put_int(fsdp_str *out, int field, int64_t value)
{
    put_key(out, field, FSDP_WIRE_VARINT);
    put_varint(out, (uint64_t)value);
}

static void put_fixed(fsdp_str *out, uint64_t bits, size_t bytes)
{
    unsigned char text[8];
    for (size_t i = 0; i < bytes; i++)
        text[i] = (unsigned char)(bits >> 8 * i);
    fsdp_str_append(out, (const char *)text, bytes);
}

static void put_double(fsdp_str *out, int field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(out, field, FSDP_WIRE_64);
    put_fixed(out, bits, sizeof bits);
}

static void put_float(fsdp_str *out, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(out, field, FSDP_WIRE_32);
    put_fixed(out, bits, sizeof bits);
}

static void put_bytes(fsdp_str *out, int field, const char *bytes, size_t n)
{
    put_key(out, field, FSDP_WIRE_BYTES);
    put_varint(out, n);
    fsdp_str_append(out, bytes, n);
}

static void put_text(fsdp_str *out, int field, const char *text)
{
    put_bytes(out, field, text, strlen(text));
}

/* Append `message` as field number `field`, and free `message`. */
static void put_message(fsdp_str *out, int field, fsdp_str *message)
{
    out->failed |= message->failed;
    put_bytes(out, field, message->data ? message->data : "", message->len);
    fsdp_str_fini(message);
}

/* ---- records ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static fsdp_str begin_event(int64_t step)
{
    fsdp_str event = {0};
    put_double(&event, FSDP_EVENT_WALL_TIME, now());
    if (step)
        put_int(&event, FSDP_EVENT_STEP, step);
    return event;
}

/* Append `event` to the file as one record, and free `event`. */
static fsdp_status write_event(fsdp_event_file *file, fsdp_str *event)
{
    fsdp_str record = {0};
    const size_t n = event->len;
    record.failed = event->failed;
    put_fixed(&record, n, 8);
    if (!record.failed) {
        put_fixed(&record, fsdp_record_sum(&file->table, record.data, 8), 4);
        fsdp_str_append(&record, event->data, n);
        put_fixed(&record, fsdp_record_sum(&file->table, event->data, n), 4);
    }
    fsdp_str_fini(event);
    const size_t bytes = record.len;
    char *data = fsdp_str_take(&record);
    fsdp_status status =
        data ? fsdp_append_bytes(file->fd, file->path, data, bytes) : FSDP_ERR_NOMEM;
    fsdp_free(data);
    return status;
}

/* ---- the file ---- */

/* Open a new file. The counter in its name is the smallest number for which no file exists. */
static fsdp_status open_file(fsdp_event_file *file, const char *dir)
{
    char host[HOST_BYTES];
    if (gethostname(host, sizeof host) != 0)
        snprintf(host, sizeof host, "localhost");
    host[sizeof host - 1] = 0;
    for (int counter = 0; counter < MAX_COUNTER; counter++) {
        fsdp_free(file->path);
        file->path = fsdp_strdup_printf("%s/events.out.tfevents.%010lld.%s.%lld.%d", dir,
                                        (long long)time(NULL), host, (long long)getpid(), counter);
        if (!file->path)
            return FSDP_ERR_NOMEM;
        file->fd = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (file->fd >= 0)
            return FSDP_OK;
        if (errno != EEXIST)
            break;
    }
    return fsdp_error(FSDP_ERR_IO, "%s: %s", file->path, strerror(errno));
}

/* Write the events with which every file begins. */
static fsdp_status write_head(fsdp_event_file *file, int64_t purge_step)
{
    const int64_t step = purge_step > 0 ? purge_step : 0;
    fsdp_str event = begin_event(step), session = {0};
    put_text(&event, FSDP_EVENT_FILE_VERSION, "brain.Event:2");
    FSDP_TRY(write_event(file, &event));
    if (purge_step == FSDP_EVENT_NO_PURGE)
        return FSDP_OK;
    event = begin_event(step);
    put_int(&session, FSDP_SESSION_STATUS, FSDP_SESSION_START);
    put_message(&event, FSDP_EVENT_SESSION_LOG, &session);
    return write_event(file, &event);
}

fsdp_status fsdp_event_file_create(const char *dir, int64_t purge_step, fsdp_event_file **out)
{
    FSDP_TRY(fsdp_directory_make(dir));
    fsdp_event_file *file = fsdp_calloc(1, sizeof *file);
    if (!file)
        return FSDP_ERR_NOMEM;
    file->fd = -1;
    fsdp_record_table_init(&file->table);
    fsdp_status status = open_file(file, dir);
    if (status == FSDP_OK)
        status = write_head(file, purge_step);
    if (status == FSDP_OK)
        *out = file;
    else
        fsdp_event_file_close(file);
    return status;
}

void fsdp_event_file_close(fsdp_event_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    fsdp_free(file->path);
    fsdp_free(file);
}

const char *fsdp_event_file_path(const fsdp_event_file *file)
{
    return file->path;
}

fsdp_status fsdp_event_file_scalars(fsdp_event_file *file, int64_t step,
                                    const fsdp_event_scalar *scalars, size_t n)
{
    fsdp_str event = begin_event(step), summary = {0};
    for (size_t i = 0; i < n; i++) {
        fsdp_str value = {0};
        put_text(&value, FSDP_VALUE_TAG, scalars[i].tag);
        put_float(&value, FSDP_VALUE_SIMPLE, (float)scalars[i].value);
        put_message(&summary, FSDP_SUMMARY_VALUE, &value);
    }
    put_message(&event, FSDP_EVENT_SUMMARY, &summary);
    return write_event(file, &event);
}

/* Append to `value` the metadata that says that its tensor is a text. TensorBoard shows a tensor as
 * text only if it has this metadata. */
static void put_text_metadata(fsdp_str *value)
{
    fsdp_str metadata = {0}, plugin = {0};
    put_text(&plugin, FSDP_PLUGIN_NAME, "text");
    put_message(&metadata, FSDP_METADATA_PLUGIN, &plugin);
    put_message(value, FSDP_VALUE_METADATA, &metadata);
}

/* Append to `value` a tensor of one string. */
static void put_string_tensor(fsdp_str *value, const char *text)
{
    fsdp_str tensor = {0}, shape = {0}, dim = {0};
    put_int(&tensor, FSDP_TENSOR_DTYPE, FSDP_DTYPE_OF_STRINGS);
    put_int(&dim, FSDP_DIM_SIZE, 1);
    put_message(&shape, FSDP_SHAPE_DIM, &dim);
    put_message(&tensor, FSDP_TENSOR_SHAPE, &shape);
    put_text(&tensor, FSDP_TENSOR_STRINGS, text);
    put_message(value, FSDP_VALUE_TENSOR, &tensor);
}

fsdp_status fsdp_event_file_text(fsdp_event_file *file, int64_t step, const char *tag,
                                 const char *text)
{
    fsdp_str event = begin_event(step), summary = {0}, value = {0};
    put_text(&value, FSDP_VALUE_TAG, tag);
    put_text_metadata(&value);
    put_string_tensor(&value, text);
    put_message(&summary, FSDP_SUMMARY_VALUE, &value);
    put_message(&event, FSDP_EVENT_SUMMARY, &summary);
    return write_event(file, &event);
}

/* Append `values` [n] as a packed field. */
static void put_doubles(fsdp_str *out, int field, const double *values, size_t n)
{
    fsdp_str packed = {0};
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        put_fixed(&packed, bits, sizeof bits);
    }
    put_message(out, field, &packed);
}

/* Append the buckets from the first to the last one that has values. An event file has only the
 * upper limit of each bucket. If there is an empty bucket before the first one, append that bucket
 * too: its upper limit is the lower limit of the first bucket with values. */
static void put_buckets(fsdp_str *out, const fsdp_histogram *h)
{
    const double *limits = fsdp_histogram_limits();
    double counts[FSDP_HISTOGRAM_LIMITS];
    size_t first = 0, end = FSDP_HISTOGRAM_LIMITS;
    while (!h->counts.buckets[first])
        first++;
    while (!h->counts.buckets[end - 1])
        end--;
    first -= first > 0;
    for (size_t i = first; i < end; i++)
        counts[i] = (double)h->counts.buckets[i];
    put_doubles(out, FSDP_HISTOGRAM_LIMIT, limits + first, end - first);
    put_doubles(out, FSDP_HISTOGRAM_BUCKET, counts + first, end - first);
}

fsdp_status fsdp_event_file_histogram(fsdp_event_file *file, int64_t step, const char *tag,
                                      const fsdp_histogram *h)
{
    const int64_t n = fsdp_histogram_count(h);
    fsdp_str summary = {0}, value = {0}, histogram = {0};
    if (!n)
        return FSDP_OK;
    put_double(&histogram, FSDP_HISTOGRAM_MIN, (double)h->least);
    put_double(&histogram, FSDP_HISTOGRAM_MAX, (double)h->most);
    put_double(&histogram, FSDP_HISTOGRAM_NUM, (double)n);
    put_double(&histogram, FSDP_HISTOGRAM_SUM, fsdp_histogram_sum(h));
    put_double(&histogram, FSDP_HISTOGRAM_SUM_SQUARES, fsdp_histogram_sum_squares(h));
    put_buckets(&histogram, h);
    fsdp_str event = begin_event(step);
    put_text(&value, FSDP_VALUE_TAG, tag);
    put_message(&value, FSDP_VALUE_HISTOGRAM, &histogram);
    put_message(&summary, FSDP_SUMMARY_VALUE, &value);
    put_message(&event, FSDP_EVENT_SUMMARY, &summary);
    return write_event(file, &event);
}
