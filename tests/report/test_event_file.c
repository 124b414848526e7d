/* Event files of TensorBoard: bytes that its own writer wrote are read, what is written here has
 * the same form, and damage is named. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/report/event_file.h"
#include "src/report/event_reader.h"
#include "src/report/event_record.h"
#include "src/report/run_curves.h"
#include "tests/test.h"

/* Written by tensorboard 2.21's EventFileWriter, with wall_time 1.5 except in the first event:
 * scalars of steps 1, 2 and 3 (train/loss 4, 3, 2; train/learning_rate 0.5 and other 9 in step 1;
 * eval/loss 3.5 in step 2), SessionLog.START at step 3, then train/loss 1.25 at step 3 as a tensor
 * of no dimension, and eval/loss 1.25 at step 4 as a tensor of one. */
static const unsigned char written_by_tensorboard[] = {
    0x48, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xfe, 0x92, 0x48, 0x9d, 0x09, 0x95, 0xd5, 0x1c,
    0x57, 0x51, 0xc2, 0xda, 0x41, 0x1a, 0x0d, 0x62, 0x72, 0x61, 0x69, 0x6e, 0x2e, 0x45, 0x76, 0x65,
    0x6e, 0x74, 0x3a, 0x32, 0x52, 0x2e, 0x0a, 0x2c, 0x74, 0x65, 0x6e, 0x73, 0x6f, 0x72, 0x62, 0x6f,
    0x61, 0x72, 0x64, 0x2e, 0x73, 0x75, 0x6d, 0x6d, 0x61, 0x72, 0x79, 0x2e, 0x77, 0x72, 0x69, 0x74,
    0x65, 0x72, 0x2e, 0x65, 0x76, 0x65, 0x6e, 0x74, 0x5f, 0x66, 0x69, 0x6c, 0x65, 0x5f, 0x77, 0x72,
    0x69, 0x74, 0x65, 0x72, 0x84, 0x58, 0x6a, 0x5f, 0x4a, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0xaf, 0x77, 0xdb, 0xb0, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf8, 0x3f, 0x10, 0x01, 0x2a,
    0x3d, 0x0a, 0x11, 0x0a, 0x0a, 0x74, 0x72, 0x61, 0x69, 0x6e, 0x2f, 0x6c, 0x6f, 0x73, 0x73, 0x15,
    0x00, 0x00, 0x80, 0x40, 0x0a, 0x1a, 0x0a, 0x13, 0x74, 0x72, 0x61, 0x69, 0x6e, 0x2f, 0x6c, 0x65,
    0x61, 0x72, 0x6e, 0x69, 0x6e, 0x67, 0x5f, 0x72, 0x61, 0x74, 0x65, 0x15, 0x00, 0x00, 0x00, 0x3f,
    0x0a, 0x0c, 0x0a, 0x05, 0x6f, 0x74, 0x68, 0x65, 0x72, 0x15, 0x00, 0x00, 0x10, 0x41, 0xce, 0xda,
    0xf0, 0x52, 0x32, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x24, 0x19, 0x56, 0xec, 0x09, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0xf8, 0x3f, 0x10, 0x02, 0x2a, 0x25, 0x0a, 0x11, 0x0a, 0x0a, 0x74,
    0x72, 0x61, 0x69, 0x6e, 0x2f, 0x6c, 0x6f, 0x73, 0x73, 0x15, 0x00, 0x00, 0x40, 0x40, 0x0a, 0x10,
    0x0a, 0x09, 0x65, 0x76, 0x61, 0x6c, 0x2f, 0x6c, 0x6f, 0x73, 0x73, 0x15, 0x00, 0x00, 0x60, 0x40,
    0x0e, 0x1c, 0xba, 0xa4, 0x20, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x29, 0xed, 0xa9, 0x50,
    0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf8, 0x3f, 0x10, 0x03, 0x2a, 0x13, 0x0a, 0x11, 0x0a,
    0x0a, 0x74, 0x72, 0x61, 0x69, 0x6e, 0x2f, 0x6c, 0x6f, 0x73, 0x73, 0x15, 0x00, 0x00, 0x00, 0x40,
    0x05, 0xf4, 0xc0, 0x6e, 0x0f, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x6d, 0x53, 0x2b, 0x09,
    0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf8, 0x3f, 0x10, 0x03, 0x3a, 0x02, 0x08, 0x01, 0xec,
    0x86, 0x12, 0xfc, 0x27, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xbb, 0xe1, 0xb1, 0x46, 0x09,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf8, 0x3f, 0x10, 0x03, 0x2a, 0x1a, 0x0a, 0x18, 0x0a, 0x0a,
    0x74, 0x72, 0x61, 0x69, 0x6e, 0x2f, 0x6c, 0x6f, 0x73, 0x73, 0x42, 0x0a, 0x08, 0x01, 0x12, 0x00,
    0x2a, 0x04, 0x00, 0x00, 0xa0, 0x3f, 0xe4, 0x1a, 0xf0, 0x3e, 0x2a, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0xae, 0x8d, 0x91, 0xf5, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf8, 0x3f, 0x10,
    0x04, 0x2a, 0x1d, 0x0a, 0x1b, 0x0a, 0x09, 0x65, 0x76, 0x61, 0x6c, 0x2f, 0x6c, 0x6f, 0x73, 0x73,
    0x42, 0x0e, 0x08, 0x01, 0x12, 0x04, 0x12, 0x02, 0x08, 0x01, 0x2a, 0x04, 0x00, 0x00, 0xa0, 0x3f,
    0x0d, 0x17, 0xc2, 0x8b};

enum {
    START_AT = 292, /* offset of the record of SessionLog.START */
    START_BYTES = 12 + 15 + 4
};

static const char *put_bytes(fsdp_test *t, const char *name, const void *bytes, size_t n)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_dir(t), name);
    FILE *file = fopen(path, "wb");
    const bool written = file && fwrite(bytes, 1, n, file) == n;
    return file && fclose(file) == 0 && written ? path : NULL;
}

TEST(what_tensorboard_wrote_is_read)
{
    fsdp_metrics_curves c;
    const char *path = put_bytes(t, "events.out.tfevents.1.a.1.0", written_by_tensorboard,
                                 sizeof written_by_tensorboard);
    ASSERT_OK(fsdp_run_curves_read(path, &c));
    ASSERT_INT(c.loss.len, 3);
    ASSERT_F32(c.loss.points[1].value, 3);
    ASSERT_F32(c.loss.points[2].step, 3);
    ASSERT_F32(c.loss.points[2].value, 1.25);
    ASSERT_INT(c.lr.len, 1);
    ASSERT_F32(c.lr.points[0].value, 0.5);
    ASSERT_INT(c.validation.len, 2);
    ASSERT_F32(c.validation.points[1].value, 1.25);
    ASSERT(c.is_float32 && !c.end.found);
    fsdp_metrics_curves_fini(&c);
}

/* The names are those of rows of the kind "summary", and of transformers' Trainer. */
TEST(what_a_run_says_at_its_end_is_read)
{
    const fsdp_event_scalar last[] = {{"train/train_runtime", 7}, {"train/train_loss", 2.5}},
                            own[] = {{"summary/total_s", 8},
                                     {"summary/step_s", 0.5},
                                     {"train/loss", 1},
                                     {"train/seconds", 0.25}};
    fsdp_metrics_curves c;
    fsdp_event_file *file;
    ASSERT_OK(fsdp_event_file_create(fsdp_test_dir(t), FSDP_EVENT_NO_PURGE, &file));
    ASSERT_OK(fsdp_event_file_scalars(file, 3, last, 2));
    ASSERT_OK(fsdp_event_file_scalars(file, 3, own, 4));
    ASSERT_OK(fsdp_run_curves_read(fsdp_event_file_path(file), &c));
    fsdp_event_file_close(file);
    ASSERT(c.end.found);
    ASSERT_F32(c.end.total_s, 8);
    ASSERT_F32(c.end.step_s, 0.5);
    ASSERT_F32(c.end.train_loss, 2.5);
    ASSERT(isnan(c.end.validation_loss) && isnan(c.end.host_mib));
    ASSERT_INT(c.seconds.len, 1);
    fsdp_metrics_curves_fini(&c);
    /* A run that continues has not ended. */
    ASSERT_OK(fsdp_event_file_create(fsdp_test_dir(t), 3, &file));
    fsdp_event_file_close(file);
    ASSERT_ERROR(fsdp_run_curves_read(fsdp_test_dir(t), &c), FSDP_ERR_INVALID,
                 "neither train/loss");
}

/* torch.utils.tensorboard 2.x makes this HistogramProto of 0.25, 0.25, 0.3125 and 0.375. */
static const unsigned char histogram_of_torch[] = {
    0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xd0, 0x3f, 0x11, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0xd8, 0x3f, 0x19, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x40, 0x21, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0xf3, 0x3f, 0x29, 0x00, 0x00, 0x00, 0x00, 0x00, 0x40, 0xd7, 0x3f,
    0x32, 0x30, 0xed, 0x5a, 0xd3, 0x5f, 0xc5, 0xea, 0xce, 0x3f, 0x9c, 0x0b, 0x81, 0xc1, 0x1f,
    0x01, 0xd1, 0x3f, 0x5f, 0x26, 0x41, 0xbb, 0x6f, 0xb4, 0xd2, 0x3f, 0xcf, 0x43, 0x61, 0xb4,
    0x47, 0x93, 0xd4, 0x3f, 0x97, 0xca, 0x37, 0x13, 0x02, 0xa2, 0xd6, 0x3f, 0xda, 0x5e, 0xbd,
    0xae, 0x68, 0xe5, 0xd8, 0x3f, 0x3a, 0x30, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x40, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf0, 0x3f, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf0, 0x3f};

TEST(a_histogram_is_that_of_torch)
{
    static const float values[] = {0.375f, 0.25f, 0.3125f, 0.25f, NAN, INFINITY};
    fsdp_event_file *file;
    fsdp_metrics_curves c = {0};
    static fsdp_histogram h;
    char *text;
    size_t bytes;
    fsdp_histogram_clear(&h);
    ASSERT_OK(fsdp_event_file_create(fsdp_test_dir(t), FSDP_EVENT_NO_PURGE, &file));
    ASSERT_OK(fsdp_event_file_histogram(file, 3, "empty", &h));
    fsdp_histogram_add(&h, values, FSDP_LENGTH(values));
    ASSERT_INT(h.counts.not_finite, 2);
    ASSERT_OK(fsdp_event_file_histogram(file, 3, "weights/root", &h));
    ASSERT_OK(fsdp_file_read(fsdp_event_file_path(file), 10000, &text, &bytes));
    ASSERT(memmem(text, bytes, histogram_of_torch, sizeof histogram_of_torch));
    ASSERT(memmem(text, bytes, "weights/root", 12) && !memmem(text, bytes, "empty", 5));
    fsdp_free(text);
    /* The reader of curves passes over it. */
    ASSERT_OK(fsdp_event_file_read(fsdp_event_file_path(file), &c));
    ASSERT_INT(c.loss.len, 0);
    fsdp_event_file_close(file);
}

/* Every length is either read up to its last complete record, or an error: never a wrong point. */
TEST(a_file_that_is_still_written_ends_with_its_last_complete_record)
{
    fsdp_metrics_curves c = {0};
    size_t points = 0;
    for (size_t n = 0; n < sizeof written_by_tensorboard; n++) {
        const char *path = put_bytes(t, "events.out.tfevents.1.a.1.0", written_by_tensorboard, n);
        ASSERT_OK(fsdp_event_file_read(path, &c));
        ASSERT(c.loss.len <= 3);
        points = c.loss.len > points ? c.loss.len : points;
        fsdp_metrics_curves_fini(&c);
    }
    ASSERT_INT(points, 3);
}

/* Return the number of losses in the records before the one with byte `i`. The session's start
 * removes the third loss. */
static size_t points_before(size_t i)
{
    static const size_t ends[] = {178, 244, START_AT, START_AT + START_BYTES, 378};
    static const size_t points[] = {0, 1, 2, 3, 2, 3};
    size_t record = 0;
    while (record < FSDP_LENGTH(ends) && i >= ends[record])
        record++;
    return points[record];
}

/* Damage in the first record is an error. Later damage ends the file: no point of the damaged
 * record is read, and a note names the byte. */
TEST(every_flipped_bit_is_noticed)
{
    enum {
        FIRST_RECORD_BYTES = 88
    };
    unsigned char bytes[sizeof written_by_tensorboard];
    for (size_t i = 0; i < sizeof bytes; i++) {
        fsdp_metrics_curves c = {0};
        memcpy(bytes, written_by_tensorboard, sizeof bytes);
        bytes[i] ^= (unsigned char)(1u << i % 8);
        const char *path = put_bytes(t, "events.out.tfevents.1.a.1.0", bytes, sizeof bytes);
        if (i < FIRST_RECORD_BYTES) {
            ASSERT_ERROR(fsdp_event_file_read(path, &c), FSDP_ERR_FORMAT, "checksum");
        } else {
            ASSERT_OK(fsdp_event_file_read(path, &c));
            ASSERT(c.notes && strstr(c.notes, path) && strstr(c.notes, "checksum"));
            ASSERT_INT(c.loss.len, points_before(i));
        }
        fsdp_metrics_curves_fini(&c);
    }
}

TEST(checksums_are_those_of_tfrecord)
{
    fsdp_record_table table;
    fsdp_record_table_init(&table);
    /* CRC-32C of "123456789" is 0xE3069283 (RFC 3720, and any list of check values). */
    const uint32_t crc = 0xE3069283u;
    ASSERT(fsdp_record_sum(&table, "123456789", 9) == (crc >> 15 | crc << 17) + 0xa282ead8u);
}

static fsdp_status write_steps(const char *dir, int first, int last, int64_t purge_step,
                               double value)
{
    fsdp_event_file *file;
    fsdp_status status = FSDP_OK;
    FSDP_TRY(fsdp_event_file_create(dir, purge_step, &file));
    for (int step = first; step <= last && status == FSDP_OK; step++) {
        const fsdp_event_scalar scalars[] = {{"train/loss", value * step}, {"x", (double)NAN}};
        status = fsdp_event_file_scalars(file, step, scalars, 2);
    }
    fsdp_event_file_close(file);
    return status;
}

TEST(a_resumed_run_replaces_the_steps_that_it_repeats)
{
    fsdp_metrics_curves c;
    char dir[300];
    snprintf(dir, sizeof dir, "%s/logs", fsdp_test_dir(t));
    ASSERT_OK(write_steps(dir, 1, 6, FSDP_EVENT_NO_PURGE, 1));
    ASSERT_OK(write_steps(dir, 5, 5, 5, 10));
    ASSERT_OK(fsdp_run_curves_read(dir, &c));
    ASSERT_INT(c.loss.len, 5);
    ASSERT_F32(c.loss.points[3].value, 4);
    ASSERT_F32(c.loss.points[4].value, 50);
    fsdp_metrics_curves_fini(&c);
}

/* The form of the records, up to the wall time of each. */
TEST(events_have_the_bytes_that_tensorboard_writes)
{
    fsdp_event_file *file;
    char *bytes;
    size_t n;
    ASSERT_OK(fsdp_event_file_create(fsdp_test_dir(t), 3, &file));
    const fsdp_event_scalar scalars[] = {
        {"train/loss", 4.0}, {"train/learning_rate", 0.5}, {"other", 9.0}};
    ASSERT_OK(fsdp_event_file_scalars(file, 1, scalars, 3));
    ASSERT_OK(fsdp_file_read(fsdp_event_file_path(file), 10000, &bytes, &n));
    fsdp_event_file_close(file);
    /* file_version at step 3: 12 + 26 + 4 bytes; the start of a session; the scalars */
    ASSERT_INT(n, 42 + START_BYTES + 90);
    ASSERT(memcmp(bytes + 12 + 9,
                  "\x10\x03\x1a\x0d"
                  "brain.Event:2",
                  17) == 0);
    ASSERT(memcmp(bytes + 42 + 12 + 9, written_by_tensorboard + START_AT + 12 + 9, 6) == 0);
    ASSERT(memcmp(bytes + 42 + START_BYTES, written_by_tensorboard + 88, 12) == 0);
    ASSERT(memcmp(bytes + 42 + START_BYTES + 21, written_by_tensorboard + 88 + 21, 65) == 0);
    fsdp_free(bytes);
}

TEST(a_text_is_a_tensor_of_the_text_plugin)
{
    /* Value(tag="a/text_summary", metadata=SummaryMetadata(plugin_data=PluginData(
     * plugin_name="text")), tensor=TensorProto(dtype=DT_STRING, tensor_shape=[1],
     * string_val=["hi"])), serialized by protobuf except for the order of its fields. */
    static const char value[] = "\x2a\x2a\x0a\x28\x0a\x0e"
                                "a/text_summary"
                                "\x4a\x08\x0a\x06\x0a\x04"
                                "text"
                                "\x42\x0c\x08\x07\x12\x04\x12\x02\x08\x01\x42\x02"
                                "hi";
    fsdp_event_file *file;
    char *bytes;
    size_t n;
    ASSERT_OK(fsdp_event_file_create(fsdp_test_dir(t), FSDP_EVENT_NO_PURGE, &file));
    ASSERT_OK(fsdp_event_file_text(file, 0, "a/text_summary", "hi"));
    ASSERT_OK(fsdp_file_read(fsdp_event_file_path(file), 10000, &bytes, &n));
    fsdp_event_file_close(file);
    ASSERT(n > sizeof value + 4);
    ASSERT(memcmp(bytes + n - 4 - (sizeof value - 1), value, sizeof value - 1) == 0);
    fsdp_free(bytes);
}

TEST(names_are_those_of_tensorboard_and_never_reused)
{
    fsdp_event_file *a, *b;
    ASSERT_OK(fsdp_event_file_create(fsdp_test_dir(t), FSDP_EVENT_NO_PURGE, &a));
    ASSERT_OK(fsdp_event_file_create(fsdp_test_dir(t), FSDP_EVENT_NO_PURGE, &b));
    ASSERT(strcmp(fsdp_event_file_path(a), fsdp_event_file_path(b)) != 0);
    ASSERT(fsdp_event_file_is_named(fsdp_event_file_path(a)));
    ASSERT(strstr(fsdp_event_file_path(a), "/events.out.tfevents."));
    fsdp_event_file_close(a);
    fsdp_event_file_close(b);
}

TEST(a_folder_without_a_run_is_named)
{
    fsdp_metrics_curves c;
    ASSERT_ERROR(fsdp_run_curves_read(fsdp_test_dir(t), &c), FSDP_ERR_NOT_FOUND, "--logging-dir");
    char dir[300];
    snprintf(dir, sizeof dir, "%s/runs/one", fsdp_test_dir(t));
    ASSERT_OK(write_steps(dir, 1, 2, FSDP_EVENT_NO_PURGE, 1));
    ASSERT_OK(fsdp_run_curves_read(fsdp_test_dir(t), &c));
    ASSERT_INT(c.loss.len, 2);
    fsdp_metrics_curves_fini(&c);
}

TEST(failing_allocations_leak_nothing)
{
    char dir[300];
    snprintf(dir, sizeof dir, "%s/runs/one", fsdp_test_dir(t));
    ASSERT_OK(write_steps(dir, 1, 2, FSDP_EVENT_NO_PURGE, 1));
    fsdp_status status = FSDP_ERR_NOMEM;
    for (uint64_t n = 1; status != FSDP_OK; n++) {
        fsdp_metrics_curves c = {0};
        ASSERT_INT(status, FSDP_ERR_NOMEM);
        fsdp_alloc_fail_at(n);
        status = fsdp_run_curves_read(fsdp_test_dir(t), &c);
        fsdp_alloc_fail_at(0);
        fsdp_metrics_curves_fini(&c);
    }
    status = FSDP_ERR_NOMEM;
    for (uint64_t n = 1; status != FSDP_OK; n++) {
        ASSERT_INT(status, FSDP_ERR_NOMEM);
        fsdp_alloc_fail_at(n);
        status = write_steps(dir, 1, 2, 1, 1);
        fsdp_alloc_fail_at(0);
    }
}
