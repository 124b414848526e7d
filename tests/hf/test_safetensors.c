/* safetensors files, single and with an index. Files of fixtures/safetensors named ok_ must load,
 * bad_ must be refused; hand.safetensors equals byte for byte what the library (0.8.0) writes. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fsdp/ckpt.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/philox.h"
#include "tests/test.h"

static const char *scratch(fsdp_test *t)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/f.safetensors", fsdp_test_dir(t));
    return path;
}

static const char *fixture(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_path("fixtures"), name);
    return path;
}

/* A file of this header and `data_bytes` zeros. */
static void write_file(fsdp_test *t, const char *header, size_t data_bytes)
{
    size_t n = strlen(header);
    unsigned char *bytes = fsdp_calloc(8 + n + data_bytes, 1);
    ASSERT(bytes != NULL);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)n >> 8 * i);
    memcpy(bytes + 8, header, n);
    fsdp_status status = fsdp_file_write(scratch(t), bytes, 8 + n + data_bytes);
    fsdp_free(bytes);
    ASSERT_OK(status);
}

static fsdp_status open_and_close(const char *path)
{
    fsdp_safetensors *file;
    fsdp_status status = fsdp_safetensors_open(path, &file);
    if (status == FSDP_OK)
        fsdp_safetensors_close(file);
    return status;
}

TEST(good_fixtures_load_and_bad_ones_are_refused)
{
    const char *dir = fixture("safetensors");
    char **names;
    size_t count;
    ASSERT_OK(fsdp_directory_list(dir, &names, &count));
    ASSERT(count >= 9);
    for (size_t i = 0; i < count; i++) {
        char *path = fsdp_path_join(dir, names[i]);
        fsdp_status status = open_and_close(path);
        bool bad = strncmp(names[i], "bad_", 4) == 0;
        if (status != (bad ? FSDP_ERR_FORMAT : FSDP_OK))
            FAIL("%s: %s: %s", names[i], fsdp_status_name(status), fsdp_last_error());
        if (bad && !strstr(fsdp_last_error(), names[i]))
            FAIL("%s: the error does not name the file: %s", names[i], fsdp_last_error());
        fsdp_free(path);
    }
    fsdp_free(names);
}

TEST(entries_are_found_with_shape_dtype_and_data)
{
    fsdp_safetensors *file;
    ASSERT_OK(fsdp_safetensors_open(fixture("safetensors/hand.safetensors"), &file));
    ASSERT_STR(fsdp_safetensors_metadata(file, "format"), "pt");
    ASSERT(!fsdp_safetensors_metadata(file, "other"));
    size_t n = fsdp_safetensors_count(file);
    for (size_t i = 1; i < n; i++)
        ASSERT(strcmp(fsdp_safetensors_at(file, i - 1)->name, fsdp_safetensors_at(file, i)->name) <
               0);
    const fsdp_checkpoint_entry *e = fsdp_safetensors_find(file, "empty");
    ASSERT(e && e->ndim == 2 && e->shape[0] == 0 && e->shape[1] == 4 && e->bytes == 0);
    e = fsdp_safetensors_find(file, "scalar");
    ASSERT(e && e->ndim == 0 && e->numel == 1 && e->bytes == 4);
    fsdp_dtype dtype;
    ASSERT_OK(fsdp_checkpoint_entry_dtype(e, &dtype));
    ASSERT_INT(dtype, FSDP_DTYPE_F32);
    e = fsdp_safetensors_find(file, "bf16");
    ASSERT(e && e->bytes == 6);
    ASSERT_STR(e->dtype_name, "BF16");
    e = fsdp_safetensors_find(file, "i16");
    ASSERT(e != NULL);
    ASSERT_ERROR(fsdp_checkpoint_entry_dtype(e, &dtype), FSDP_ERR_UNSUPPORTED,
                 "hand.safetensors: tensor 'i16': dtype I16");
    ASSERT(!fsdp_safetensors_find(file, "absent"));
    fsdp_safetensors_close(file);
}

#define ENTRY(shape, begin, end)                                                                   \
    "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

TEST(malformed_headers_are_named)
{
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *error; /* NULL: loads */
    } cases[] = {
        {"{}", 0, NULL},
        {"{\"a\":" ENTRY("[2]", 0, 8) "} \t\r\n", 8, NULL},
        {"{\"__metadata__\":null,\"a\":" ENTRY("[2]", 0, 8) "}", 8, NULL},
        {"{\"__metadata__\":{},\"a\":" ENTRY("[]", 0, 4) "}", 4, NULL},
        /* duplicate: the last one is used */
        {"{\"a\":" ENTRY("[1]", 0, 4) ",\"a\":" ENTRY("[2]", 0, 8) "}", 8, NULL},
        /* empty tensors may share an offset */
        {"{\"b\":" ENTRY("[0]", 0, 0) ",\"a\":" ENTRY("[2]", 0, 8) ",\"c\":" ENTRY("[3,0]", 8,
                                                                                   8) "}",
         8, NULL},
        {"{\"a\":{\"dtype\":\"F32\",\"x\":{\"y\":[1e3]},\"shape\":[2],\"data_offsets\":[0,8],"
         "\"z\":1000000000000000019884624838656}}",
         8, NULL},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}", 2, NULL},
        {"{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[2,2],\"data_offsets\":[0,3]}}", 3, NULL},
        {"{\"a\":" ENTRY("[0,4294967296,4294967296]", 0, 0) "}", 0, NULL},
        {"", 8, "does not begin with '{'"},
        {" {}", 0, "does not begin with '{'"},
        {"[]", 0, "does not begin with '{'"},
        {"{\"a\":", 8, "header: line 1, column"},
        {"{} x", 0, "header: line 1, column 4"},
        {"{\"\xff\":" ENTRY("[2]", 0, 8) "}", 8, "header: line 1, column"},
        {"{}", 1, "1 bytes follow the last tensor"},
        {"{\"a\":" ENTRY("[2]", 0, 8) "}", 7, "truncated: tensor 'a' ends at byte 8"},
        {"{\"a\":" ENTRY("[2]", 8, 0) "}", 8, "tensor 'a': shape and dtype need 8 bytes"},
        {"{\"a\":" ENTRY("[2]", 0, 8) ",\"b\":" ENTRY("[0]", 4, 4) "}", 8,
         "tensor 'b' begins at byte 4"},
        {"{\"a\":" ENTRY("[2]", 4, 12) "}", 12,
         "tensor 'a' begins at byte 4 of the data, after a hole"},
        {"{\"a\":" ENTRY("[4294967296,4294967296,0]", 0, 0) "}", 0, "tensor 'a': its shape"},
        {"{\"a\":" ENTRY("[4611686018427387904]", 0, 0) "}", 0, "tensor 'a': its shape"},
        {"{\"a\":" ENTRY("[-2]", 0, 8) "}", 8, "a.shape[0]: expected an integer, 0 or more"},
        {"{\"a\":" ENTRY("[2.0]", 0, 8) "}", 8, "a.shape[0]: expected"},
        {"{\"a\":" ENTRY("[99999999999999999999]", 0, 8) "}", 8, "a.shape[0]: expected"},
        {"{\"a\":" ENTRY("2", 0, 8) "}", 8, "a.shape: expected a list"},
        {"{\"a\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
         "a.dtype: expected a dtype of safetensors (F32, BF16, ...), found \"F31\""},
        {"{\"a\":{\"dtype\":\"f32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "found \"f32\""},
        {"{\"a\":{\"dtype\":32,\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
         "a.dtype: expected a string"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "a.dtype: missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "a.shape: missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "a.data_offsets: missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]}}", 8, "two integers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,\"8\"]}}", 8,
         "a.data_offsets[1]: expected"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2,
         "tensor 'a': its shape"},
        {"{\"a\":[\"F32\",[2],[0,8]]}", 8, "a: expected an object"},
        {"{\"__metadata__\":{\"a\":1},\"a\":" ENTRY("[2]", 0, 8) "}", 8,
         "__metadata__.a: expected a string, found 1"},
        {"{\"__metadata__\":[],\"a\":" ENTRY("[2]", 0, 8) "}", 8,
         "__metadata__: expected an object"},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++) {
        write_file(t, cases[i].header, cases[i].data_bytes);
        CHECK_HERE();
        fsdp_status status = open_and_close(scratch(t));
        if (status != (cases[i].error ? FSDP_ERR_FORMAT : FSDP_OK))
            FAIL("%s: %s: %s", cases[i].header, fsdp_status_name(status), fsdp_last_error());
        if (cases[i].error && (!strstr(fsdp_last_error(), cases[i].error) ||
                               !strstr(fsdp_last_error(), "f.safetensors: ")))
            FAIL("%s: unexpected message: %s", cases[i].header, fsdp_last_error());
    }
    ASSERT_OK(fsdp_file_write(scratch(t), "\1\0\0\0\0\0\0", 7));
    ASSERT_ERROR(open_and_close(scratch(t)), FSDP_ERR_FORMAT, "7 bytes are too few");
    ASSERT_OK(fsdp_file_write(scratch(t), "", 0));
    ASSERT_ERROR(open_and_close(scratch(t)), FSDP_ERR_FORMAT,
                 "f.safetensors: not a safetensors file, but an empty file");
    ASSERT_OK(fsdp_file_write(scratch(t), "\x10\0\0\0\0\0\0\0{}", 10));
    ASSERT_ERROR(open_and_close(scratch(t)), FSDP_ERR_FORMAT, "truncated: header of 16 bytes");
    ASSERT_ERROR(open_and_close("/nonexistent/x"), FSDP_ERR_NOT_FOUND, "/nonexistent/x");
}

/* Every prefix of a good file is refused. */
TEST(every_truncation_is_refused)
{
    char *text;
    size_t bytes;
    ASSERT_OK(fsdp_file_read(fixture("safetensors/hand.safetensors"), 100000, &text, &bytes));
    ASSERT_OK(fsdp_file_write(scratch(t), text, bytes));
    fsdp_free(text);
    ASSERT_OK(open_and_close(scratch(t)));
    while (bytes-- > 0) {
        ASSERT(truncate(scratch(t), (off_t)bytes) == 0);
        ASSERT_INT(open_and_close(scratch(t)), FSDP_ERR_FORMAT);
    }
}

TEST(rows_are_byte_ranges)
{
    const void *data;
    size_t bytes;
    fsdp_safetensors *file;
    write_file(t,
               "{\"a\":" ENTRY("[5,3]", 0, 60) ",\"e\":" ENTRY("[0,3]", 60, 60) ",\"s\":" ENTRY(
                   "[]", 60, 64) "}",
               64);
    CHECK_HERE();
    ASSERT_OK(fsdp_safetensors_open(scratch(t), &file));
    const fsdp_checkpoint_entry *a = fsdp_safetensors_find(file, "a");
    ASSERT_OK(fsdp_checkpoint_entry_rows(a, 1, 3, &data, &bytes));
    ASSERT_INT(bytes, 24);
    ASSERT_INT((const char *)data - (const char *)a->data, 12);
    fsdp_checkpoint_advise(data, bytes, FSDP_CHECKPOINT_WILL_READ);
    fsdp_checkpoint_advise(data, bytes, FSDP_CHECKPOINT_DONE);
    ASSERT_OK(fsdp_checkpoint_entry_rows(a, 5, 5, &data, &bytes));
    ASSERT_INT(bytes, 0);
    ASSERT_ERROR(fsdp_checkpoint_entry_rows(a, 4, 6, &data, &bytes), FSDP_ERR_INVALID,
                 "tensor 'a' has 5 rows, not [4, 6)");
    ASSERT_ERROR(fsdp_checkpoint_entry_rows(a, 3, 2, &data, &bytes), FSDP_ERR_INVALID, "rows");
    ASSERT_ERROR(fsdp_checkpoint_entry_rows(a, -1, 2, &data, &bytes), FSDP_ERR_INVALID, "rows");
    ASSERT_OK(fsdp_checkpoint_entry_rows(fsdp_safetensors_find(file, "e"), 0, 0, &data, &bytes));
    ASSERT_INT(bytes, 0);
    ASSERT_OK(fsdp_checkpoint_entry_rows(fsdp_safetensors_find(file, "s"), 0, 1, &data, &bytes));
    ASSERT_INT(bytes, 4);
    ASSERT_OK(fsdp_checkpoint_entry_check_shape(a, (int64_t[]){5, 3}, 2));
    ASSERT_ERROR(fsdp_checkpoint_entry_check_shape(a, (int64_t[]){3, 5}, 2), FSDP_ERR_FORMAT,
                 "tensor 'a' has shape [5, 3], expected [3, 5]");
    fsdp_safetensors_close(file);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Specs of every entry of `file`, in the order of names. */
static fsdp_safetensors_spec *specs_of(const fsdp_safetensors *file)
{
    size_t n = fsdp_safetensors_count(file);
    fsdp_safetensors_spec *specs = fsdp_calloc(n, sizeof *specs);
    for (size_t i = 0; specs && i < n; i++) {
        const fsdp_checkpoint_entry *e = fsdp_safetensors_at(file, i);
        specs[i] = (fsdp_safetensors_spec){
            .name = e->name, .dtype_name = e->dtype_name, .shape = e->shape, .ndim = e->ndim};
    }
    return specs;
}

/* A file of the library is read and written again in small pieces from back to front: the bytes are
 * the same. */
static void rewrite(fsdp_test *t, const char *path, size_t piece)
{
    fsdp_safetensors *file;
    fsdp_safetensors_writer *writer;
    ASSERT_OK(fsdp_safetensors_open(path, &file));
    size_t n = fsdp_safetensors_count(file);
    fsdp_safetensors_spec *specs = specs_of(file);
    ASSERT_OK(fsdp_safetensors_writer_create(scratch(t), specs, n, &writer));
    for (size_t i = n; i-- > 0;) {
        const fsdp_checkpoint_entry *e = fsdp_safetensors_at(file, i);
        for (size_t end = e->bytes; end > 0;) {
            size_t begin = end > piece ? end - piece : 0;
            ASSERT_OK(fsdp_safetensors_writer_write(writer, e->name, begin,
                                                    (const char *)e->data + begin, end - begin));
            end = begin;
        }
    }
    ASSERT(!fsdp_path_is_file(scratch(t)));
    ASSERT_OK(fsdp_safetensors_writer_finish(writer));
    fsdp_free(specs);
    fsdp_safetensors_close(file);
    fsdp_mapping old, new;
    ASSERT_OK(fsdp_file_map(path, &old));
    ASSERT_OK(fsdp_file_map(scratch(t), &new));
    ASSERT_INT(new.bytes, old.bytes);
    ASSERT(memcmp(new.data, old.data, old.bytes) == 0);
    fsdp_file_unmap(&old);
    fsdp_file_unmap(&new);
    ASSERT_OK(fsdp_tree_remove(scratch(t)));
}

TEST(written_files_equal_the_librarys)
{
    rewrite(t, fixture("safetensors/hand.safetensors"), 3);
    CHECK_HERE();
    rewrite(t, fixture("hf/t5_v10/model.safetensors"), 100000);
    CHECK_HERE();
    rewrite(t, fixture("hf/t5_v11/model.safetensors"), 16);
}

static size_t entries_in(const char *dir)
{
    char **names;
    size_t count = 9999;
    if (fsdp_directory_list(dir, &names, &count) == FSDP_OK)
        fsdp_free(names);
    return count;
}

TEST(an_incomplete_file_is_not_finished)
{
    static const float data[12];
    fsdp_safetensors_writer *writer;
    const fsdp_safetensors_spec specs[] = {
        {.name = "w", .dtype = FSDP_DTYPE_F32, .shape = (int64_t[]){3, 4}, .ndim = 2},
        {.name = "none", .dtype = FSDP_DTYPE_BF16, .shape = (int64_t[]){0, 4}, .ndim = 2},
    };
    ASSERT_OK(fsdp_safetensors_writer_create(scratch(t), specs, 2, &writer));
    ASSERT_OK(fsdp_safetensors_writer_write(writer, "w", 0, data, 16));
    ASSERT_OK(fsdp_safetensors_writer_write(writer, "w", 32, data, 16));
    ASSERT_ERROR(fsdp_safetensors_writer_write(writer, "w", 12, data, 8), FSDP_ERR_INVALID,
                 "bytes [12, 20) were written before");
    ASSERT_ERROR(fsdp_safetensors_writer_write(writer, "w", 28, data, 8), FSDP_ERR_INVALID,
                 "were written before");
    ASSERT_ERROR(fsdp_safetensors_writer_write(writer, "w", 0, data, 48), FSDP_ERR_INVALID,
                 "were written before");
    ASSERT_ERROR(fsdp_safetensors_writer_write(writer, "w", 40, data, 16), FSDP_ERR_INVALID,
                 "beyond its 48 bytes");
    ASSERT_ERROR(fsdp_safetensors_writer_write(writer, "w", UINT64_MAX, data, 4), FSDP_ERR_INVALID,
                 "beyond");
    ASSERT_ERROR(fsdp_safetensors_writer_write(writer, "x", 0, data, 4), FSDP_ERR_NOT_FOUND,
                 "tensor 'x' was not declared");
    ASSERT_ERROR(fsdp_safetensors_writer_finish(writer), FSDP_ERR_STATE,
                 "tensor 'w' of 48 bytes was not written from byte 16 on");
    ASSERT_INT(entries_in(fsdp_test_dir(t)), 0);

    fsdp_safetensors_spec twice[] = {specs[0], specs[0]};
    ASSERT_ERROR(fsdp_safetensors_writer_create(scratch(t), twice, 2, &writer), FSDP_ERR_INVALID,
                 "'w' is taken");
    twice[0].name = "__metadata__";
    ASSERT_ERROR(fsdp_safetensors_writer_create(scratch(t), twice, 2, &writer), FSDP_ERR_INVALID,
                 "'__metadata__' is taken");
    twice[0] = (fsdp_safetensors_spec){.name = "v", .shape = (int64_t[]){-1}, .ndim = 1};
    ASSERT_ERROR(fsdp_safetensors_writer_create(scratch(t), twice, 2, &writer), FSDP_ERR_INVALID,
                 "tensor 'v' cannot have shape [-1]");
    twice[0].dtype_name = "F7";
    ASSERT_ERROR(fsdp_safetensors_writer_create(scratch(t), twice, 2, &writer), FSDP_ERR_INVALID,
                 "dtype F7");
    ASSERT_INT(entries_in(fsdp_test_dir(t)), 0);
    ASSERT_OK(fsdp_safetensors_writer_create(scratch(t), specs, 0, &writer));
    ASSERT_OK(fsdp_safetensors_writer_finish(writer));
    ASSERT_OK(open_and_close(scratch(t)));
}

/* The limit on file sizes simulates a full disk. */
static void write_without_space(const char *path, const char *dir)
{
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};
    const fsdp_safetensors_spec spec = {
        .name = "w", .dtype = FSDP_DTYPE_F32, .shape = (int64_t[]){4000}, .ndim = 1};
    fsdp_safetensors_writer *writer;
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        _exit(9);
    if (fsdp_safetensors_writer_create(path, &spec, 1, &writer) != FSDP_ERR_IO)
        _exit(1);
    if (!strstr(fsdp_last_error(), path) || !strstr(fsdp_last_error(), "bytes"))
        _exit(2);
    _exit(entries_in(dir) == 0 ? 0 : 3);
}

TEST(a_full_disk_is_reported_at_the_start)
{
    const char *path = scratch(t);
    pid_t child = fork();
    if (child == 0)
        write_without_space(path, fsdp_test_dir(t));
    int status = -1;
    ASSERT(waitpid(child, &status, 0) == child && WIFEXITED(status));
    ASSERT_INT(WEXITSTATUS(status), 0);
}

/* ---- damaged files --------------------------------------------------------------------------- */

static uint64_t random_bits(uint64_t seed, uint64_t i)
{
    fsdp_philox r = fsdp_philox4x32(seed, i, 0);
    return (uint64_t)r.v[1] << 32 | r.v[0];
}

/* Change `text` [*n] in one of the ways headers get damaged. */
static void mutate(char *text, size_t *n, size_t cap, uint64_t bits)
{
    static const char *const words[] = {"-1",
                                        "0",
                                        "18446744073709551616",
                                        "9223372036854775807",
                                        "\"",
                                        "[",
                                        "]",
                                        "{",
                                        "}",
                                        ",",
                                        "1e400",
                                        "null",
                                        "\\u0000",
                                        "\"F64\"",
                                        "\"dtype\"",
                                        "4294967296",
                                        "\"data_offsets\":[0,8]",
                                        " "};
    size_t at = (size_t)(bits >> 8) % *n, length;
    const char *word = words[(bits >> 40) % FSDP_LENGTH(words)];
    switch (bits % 5) {
    case 0:
        text[at] = (char)(bits >> 32);
        break;
    case 1: /* cut out */
        length = 1 + (size_t)(bits >> 32) % 12;
        length = length < *n - at ? length : *n - at - 1;
        memmove(text + at, text + at + length, *n - at - length);
        *n -= length;
        break;
    case 2: /* overwrite with a word */
        length = strlen(word);
        if (at + length <= *n)
            memcpy(text + at, word, length);
        break;
    case 3: /* insert a word */
        length = strlen(word);
        if (*n + length <= cap) {
            memmove(text + at + length, text + at, *n - at);
            memcpy(text + at, word, length);
            *n += length;
        }
        break;
    default: /* another digit */
        while (at < *n && (text[at] < '0' || text[at] > '9'))
            at++;
        if (at < *n)
            text[at] = (char)('0' + (bits >> 32) % 10);
    }
}

/* Check a file that loads: its entries must be inside it. */
static void check_if_it_loads(fsdp_test *t, const char *path, size_t file_bytes, size_t *loaded)
{
    fsdp_safetensors *file;
    fsdp_status status = fsdp_safetensors_open(path, &file);
    if (status != FSDP_OK) {
        ASSERT_INT(status, FSDP_ERR_FORMAT);
        return;
    }
    ++*loaded;
    size_t sum = 0;
    unsigned checksum = 0;
    for (size_t i = 0; i < fsdp_safetensors_count(file); i++) {
        const fsdp_checkpoint_entry *e = fsdp_safetensors_at(file, i);
        const unsigned char *data = e->data;
        for (size_t k = 0; k < e->bytes; k++)
            checksum += data[k]; /* ASan or SIGSEGV if it is outside */
        sum += e->bytes;
        ASSERT(fsdp_safetensors_find(file, e->name) == e);
    }
    ASSERT(sum < file_bytes && checksum < UINT32_MAX);
    fsdp_safetensors_close(file);
}

/* Write without the sync of fsdp_file_write(), because there are thousands of files. */
static bool overwrite(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");
    bool whole = f && fwrite(text, 1, n, f) == n;
    return f && fclose(f) == 0 && whole;
}

static void mutate_and_open(fsdp_test *t, uint64_t seed, int rounds)
{
    enum {
        CAP = 4096
    };
    char *original, text[CAP];
    size_t bytes, loaded = 0;
    ASSERT_OK(fsdp_file_read(fixture("safetensors/hand.safetensors"), CAP, &original, &bytes));
    size_t header = (unsigned char)original[0] | (size_t)(unsigned char)original[1] << 8;
    for (int i = 0; i < rounds; i++) {
        size_t n = header;
        memcpy(text + 8, original + 8, header);
        uint64_t bits = random_bits(seed, (uint64_t)i);
        for (uint64_t k = 0; k <= bits >> 61; k++)
            mutate(text + 8, &n, CAP - 8 - (bytes - header),
                   random_bits(seed + k + 1, (uint64_t)i));
        size_t header_bytes =
            bits % 16 == 0 ? n + (bits >> 20) % 64 : n; /* sometimes the wrong length */
        for (int k = 0; k < 8; k++)
            text[k] = (char)(unsigned char)((uint64_t)header_bytes >> 8 * k);
        size_t data = bytes - header - 8;
        memcpy(text + 8 + n, original + 8 + header, data);
        ASSERT(overwrite(scratch(t), text, 8 + n + data));
        check_if_it_loads(t, scratch(t), 8 + n + data, &loaded);
        if (t->failed)
            FAIL("seed %llu, round %d", (unsigned long long)seed, i);
    }
    fsdp_free(original);
    ASSERT(loaded < (size_t)rounds);
}

TEST(mutated_headers_never_reach_outside_the_file)
{
    mutate_and_open(t, 1, 3000);
    CHECK_HERE();
    mutate_and_open(t, 2, 1000);
}

TEST(reading_and_writing_survive_every_failed_allocation)
{
    static const float data[2];
    const fsdp_safetensors_spec spec = {
        .name = "w", .dtype = FSDP_DTYPE_F32, .shape = (int64_t[]){2}, .ndim = 1};
    for (long i = 1;; i++) {
        fsdp_safetensors_writer *writer;
        fsdp_alloc_fail_at(i);
        fsdp_status status = fsdp_safetensors_writer_create(scratch(t), &spec, 1, &writer);
        if (status == FSDP_OK) {
            status = fsdp_safetensors_writer_write(writer, "w", 0, data, sizeof data);
            if (status == FSDP_OK)
                status = fsdp_safetensors_writer_finish(writer);
            else
                fsdp_safetensors_writer_discard(writer);
        }
        if (status == FSDP_OK)
            status = open_and_close(scratch(t));
        fsdp_alloc_fail_at(0);
        if (status == FSDP_OK)
            break;
        ASSERT_INT(status, FSDP_ERR_NOMEM);
        ASSERT(i < 100);
        ASSERT(entries_in(fsdp_test_dir(t)) <= 1);
    }
}
