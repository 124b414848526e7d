/* Files of torch.save as models' weights. tests/fixtures/torch/make_torch.py documents their
 * content: element i of a tensor is i unless it says otherwise. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fsdp/ckpt.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/torchfile/torch_file.h"
#include "tests/test.h"
#include "tests/torchfile/torch_fixture.h"

static fsdp_status open_and_close(const char *path)
{
    fsdp_torch_file *file;
    fsdp_status status = fsdp_torch_file_open(path, &file);
    if (status == FSDP_OK)
        fsdp_torch_file_close(file);
    return status;
}

static float float_at(const fsdp_checkpoint_entry *entry, size_t i)
{
    float value;
    memcpy(&value, (const char *)entry->data + 4 * i, 4);
    return value;
}

TEST(every_dtype_has_its_name_and_bytes)
{
    static const struct {
        const char *name, *dtype;
        size_t width;
        const char *five; /* the last element's bytes */
    } dtypes[] = {
        {"float32", "F32", 4, "\0\0\xa0\x40"},
        {"float16", "F16", 2, "\0\x45"},
        {"bfloat16", "BF16", 2, "\xa0\x40"},
        {"float64", "F64", 8, "\0\0\0\0\0\0\x14\x40"},
        {"int64", "I64", 8, "\5\0\0\0\0\0\0\0"},
        {"int32", "I32", 4, "\5\0\0\0"},
        {"int16", "I16", 2, "\5\0"},
        {"int8", "I8", 1, "\5"},
        {"uint8", "U8", 1, "\5"},
        {"bool", "BOOL", 1, "\1"},
        {"complex64", "C64", 8, "\0\0\xa0\x40\0\0\0\0"},
        {"uint16", "U16", 2, "\5\0"},
        {"uint32", "U32", 4, "\5\0\0\0"},
        {"uint64", "U64", 8, "\5\0\0\0\0\0\0\0"},
        {"float8_e4m3fn", "F8_E4M3", 1, "\x4a"},
        {"float8_e5m2", "F8_E5M2", 1, "\x45"},
    };
    fsdp_torch_file *file;
    ASSERT_OK(fsdp_torch_file_open(torch_fixture("dtypes.pt"), &file));
    ASSERT_INT(fsdp_torch_file_count(file), FSDP_LENGTH(dtypes));
    for (size_t i = 0; i < FSDP_LENGTH(dtypes); i++) {
        const fsdp_checkpoint_entry *entry = fsdp_torch_file_find(file, dtypes[i].name);
        ASSERT(entry != NULL);
        ASSERT_STR(entry->name, dtypes[i].name);
        ASSERT_STR(entry->dtype_name, dtypes[i].dtype);
        ASSERT(strstr(entry->path, "dtypes.pt") != NULL);
        ASSERT_OK(fsdp_checkpoint_entry_check_shape(entry, (int64_t[]){2, 3}, 2));
        ASSERT_INT(entry->bytes, 6 * dtypes[i].width);
        if (memcmp((const char *)entry->data + 5 * dtypes[i].width, dtypes[i].five,
                   dtypes[i].width) != 0)
            FAIL("%s: the last element is not 5", dtypes[i].name);
    }
    ASSERT(fsdp_torch_file_find(file, "float") == NULL);
    fsdp_torch_file_close(file);
}

/* The fixture's views of `base` [4, 6] and others, with the element of the storage that is at [i,
 * j, k]. */
TEST(views_of_a_storage_are_read_in_row_major_order)
{
    static const struct {
        const char *name;
        int64_t shape[4];
        int ndim;
        int offset, stride[4];
    } views[] = {
        {"base", {4, 6}, 2, 0, {6, 1}},
        {"tied", {4, 6}, 2, 0, {6, 1}},
        {"transposed", {6, 4}, 2, 0, {1, 6}},
        {"sliced", {2, 3}, 2, 8, {6, 1}},
        {"columns", {4, 3}, 2, 0, {6, 2}},
        {"row", {6}, 1, 12, {1}},
        {"flat", {24}, 1, 0, {1}},
        {"expanded", {64, 64}, 2, 0, {0, 1}},
        {"empty", {0, 5}, 2, 0, {0, 0}},
        {"permuted", {4, 2, 3}, 3, 0, {1, 12, 4}},
        {"channels_last", {1, 2, 3, 4}, 4, 0, {24, 12, 4, 1}},
    };
    fsdp_torch_file *file;
    ASSERT_OK(fsdp_torch_file_open(torch_fixture("strides.pt"), &file));
    ASSERT_INT(fsdp_torch_file_count(file), FSDP_LENGTH(views) + 1);
    for (size_t v = 0; v < FSDP_LENGTH(views); v++) {
        const fsdp_checkpoint_entry *entry = fsdp_torch_file_find(file, views[v].name);
        ASSERT(entry != NULL);
        ASSERT_OK(fsdp_checkpoint_entry_check_shape(entry, views[v].shape, views[v].ndim));
        ASSERT_INT(entry->bytes, 4 * entry->numel);
        for (int64_t i = 0; i < entry->numel; i++) {
            int64_t rest = i, expected = views[v].offset;
            for (int d = views[v].ndim - 1; d >= 0; d--) {
                expected += rest % views[v].shape[d] * views[v].stride[d];
                rest /= views[v].shape[d];
            }
            if (float_at(entry, (size_t)i) != (float)expected)
                FAIL("%s: element %lld is %g, not %lld", views[v].name, (long long)i,
                     (double)float_at(entry, (size_t)i), (long long)expected);
        }
    }
    const fsdp_checkpoint_entry *scalar = fsdp_torch_file_find(file, "scalar");
    ASSERT(scalar && scalar->ndim == 0 && scalar->numel == 1 && scalar->bytes == 4);
    ASSERT_F32(float_at(scalar, 0), 7.0f);
    /* Contiguous tensors point into the file, tied ones to one place. */
    ASSERT(fsdp_torch_file_find(file, "tied")->data == fsdp_torch_file_find(file, "base")->data);
    fsdp_torch_file_close(file);
}

/* Adding the stride of the dimension with one element would overflow, which the sanitizer of
 * undefined behavior reports. */
TEST(the_stride_of_a_dimension_with_one_element_may_have_any_value)
{
    static const float expected[] = {0, 2, 4, 6};
    fsdp_torch_file *file;
    ASSERT_OK(fsdp_torch_file_open(torch_fixture("any_stride.pt"), &file));
    const fsdp_checkpoint_entry *entry = fsdp_torch_file_find(file, "w");
    ASSERT(entry != NULL);
    ASSERT_OK(fsdp_checkpoint_entry_check_shape(entry, (const int64_t[]){2, 1, 2}, 3));
    ASSERT_INT(entry->bytes, sizeof expected);
    ASSERT(memcmp(entry->data, expected, sizeof expected) == 0);
    fsdp_torch_file_close(file);
}

TEST(copies_of_strided_tensors_outlast_the_advice_that_they_are_done)
{
    fsdp_torch_file *file;
    ASSERT_OK(fsdp_torch_file_open(torch_fixture("strides.pt"), &file));
    const fsdp_checkpoint_entry *entry = fsdp_torch_file_find(file, "expanded");
    ASSERT_INT(entry->bytes, 16384); /* four pages */
    fsdp_checkpoint_advise(entry->data, entry->bytes, FSDP_CHECKPOINT_DONE);
    for (size_t i = 0; i < 4096; i++)
        ASSERT_F32(float_at(entry, i), (float)(i % 64));
    fsdp_torch_file_close(file);
}

TEST(state_dicts_are_found_where_scripts_put_them)
{
    static const struct {
        const char *file;
        size_t n, ignored;
        const char *name;
        size_t numel;
    } cases[] = {
        {"state_dict.pt", 4, 0, "0.weight", 6}, {"parameters.pt", 5, 1, "0.weight", 6},
        {"checkpoint.pt", 1, 0, "w", 5},        {"values_2.pt", 1, 19, "tensor", 2},
        {"values_5.pt", 1, 19, "tensor", 2},    {"no_crc.pt", 1, 0, "w", 6},
        {"attributes.pt", 2, 0, "w", 6},
    };
    for (size_t c = 0; c < FSDP_LENGTH(cases); c++) {
        fsdp_torch_file *file;
        ASSERT_OK(fsdp_torch_file_open(torch_fixture(cases[c].file), &file));
        ASSERT_INT(fsdp_torch_file_count(file), cases[c].n);
        ASSERT_INT(fsdp_torch_file_ignored(file), cases[c].ignored);
        for (size_t i = 1; i < cases[c].n; i++)
            ASSERT(strcmp(fsdp_torch_file_at(file, i - 1)->name,
                          fsdp_torch_file_at(file, i)->name) < 0);
        const fsdp_checkpoint_entry *entry = fsdp_torch_file_find(file, cases[c].name);
        ASSERT(entry != NULL);
        ASSERT_INT(entry->numel, cases[c].numel);
        for (size_t i = 0; strcmp(entry->dtype_name, "F32") == 0 && i < cases[c].numel; i++)
            ASSERT_F32(float_at(entry, i), (float)i);
        fsdp_torch_file_close(file);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

/* A fixture in which `from` is replaced by `to` of the same length, at one place or at all
 * places. */
static void check_changed(fsdp_test *t, const char *fixture, const char *from, const char *to,
                          size_t n, fsdp_status expected, const char *error)
{
    torch_bytes file = torch_fixture_bytes(t, fixture);
    CHECK_HERE();
    (void)torch_find(t, file, 0, from, n);
    for (size_t at = 0; at + n <= file.bytes; at++)
        if (memcmp(file.data + at, from, n) == 0)
            memcpy(file.data + at, to, n);
    fsdp_status status = open_and_close(torch_scratch(t, "f.pt", file));
    fsdp_free(file.data);
    CHECK_HERE();
    if (status != expected || !strstr(fsdp_last_error(), error))
        FAIL("%s: %s: %s", error, fsdp_status_name(status), status ? fsdp_last_error() : "");
}

#define CHANGE(from, to) from, to, sizeof(from) - 1

/* The file whose checksums are not recorded: {"w": [2, 3] of float32}. */
TEST(tensors_that_do_not_fit_their_storage_are_refused)
{
    static const struct {
        const char *from, *to;
        size_t n;
        fsdp_status status;
        const char *error;
    } cases[] = {
        {CHANGE("cpuq\6K\6t", "cpuq\6K\7t"), FSDP_ERR_FORMAT,
         "f.pt: tensor 'w': record 'data/0' of 24 bytes is not a storage of 7 elements"},
        {CHANGE("K\0K\2K\3\x86", "K\1K\2K\3\x86"), FSDP_ERR_FORMAT,
         "tensor 'w': its offset, shape and strides reach beyond its storage"},
        {CHANGE("K\0K\2K\3\x86", "K\0K\3K\3\x86"), FSDP_ERR_FORMAT, "reach beyond its storage"},
        {CHANGE("K\3K\1\x86", "K\4K\1\x86"), FSDP_ERR_FORMAT, "reach beyond its storage"},
        {CHANGE("K\0K\2K\3\x86", "NK\2K\3\x86\x94"), FSDP_ERR_FORMAT, "its offset in the storage"},
        {CHANGE("K\2K\3\x86", "K\2N\x86\x94"), FSDP_ERR_FORMAT,
         "its size or stride holds a value that is not a number"},
        {CHANGE("ctorch\nFloatStorage\nq\4", "ctorch\nLongStorage\nq\4\x94"), FSDP_ERR_FORMAT,
         "record 'data/0' of 24 bytes is not a storage of 6 elements"},
        {CHANGE("ctorch\nFloatStorage\nq\4", "ctorch\ndevice\nq\4\x94\x94\x94\x94\x94\x94"),
         FSDP_ERR_FORMAT, "tensor 'w': torch.device is not a type of elements"},
        {CHANGE("0q\5", "9q\5"), FSDP_ERR_FORMAT, "tensor 'w': record 'data/9' is missing"},
        {CHANGE("storageq", "storag_q"), FSDP_ERR_FORMAT, "tensor 'w': it has no storage"},
        {CHANGE(")Rq\13t", ")R\x88\x94t"), FSDP_ERR_UNSUPPORTED,
         "tensor 'w' has properties beyond its data; save tensor.clone() in torch"},
        {CHANGE("K\3K\1\x86", "K\3\x85\x94\x94"), FSDP_ERR_FORMAT, "not tuples of one length"},
    };
    for (size_t i = 0; i < FSDP_LENGTH(cases); i++)
        check_changed(t, "no_crc.pt", cases[i].from, cases[i].to, cases[i].n, cases[i].status,
                      cases[i].error);
}

/* Expanding to 64 GiB needs no storage, but copying would need 64 GiB of memory. */
TEST(views_that_expand_without_measure_are_refused)
{
    check_changed(t, "no_crc.pt",
                  CHANGE("K\2K\3\x86q\10K\3K\1\x86", "J\0\0\0\x10K@\x86K\0\x89\x86"),
                  FSDP_ERR_FORMAT, "its size or stride holds a value that is not a number");
    check_changed(t, "no_crc.pt",
                  CHANGE("K\2K\3\x86q\10K\3K\1\x86q\11", "J\0\0\0\x10K@\x86K\0K\0\x86\x94"),
                  FSDP_ERR_UNSUPPORTED,
                  "tensor 'w' is an expanded view of 68719476736 bytes; save tensor.contiguous()");
}

TEST(other_formats_are_refused_by_name)
{
    unsigned char tar[512] = "pickle", other_tar[512] = "archive";
    memcpy(tar + 257, "ustar", 5);
    memcpy(other_tar + 257, "ustar", 5);
    ASSERT_ERROR(open_and_close(torch_fixture("legacy.pt")), FSDP_ERR_UNSUPPORTED,
                 "legacy.pt: legacy torch.save format; load it in torch and save it again: "
                 "torch.save(torch.load(FILE, map_location=\"cpu\"), NEW_FILE)");
    ASSERT_ERROR(open_and_close(torch_scratch(t, "f.pt", (torch_bytes){tar, sizeof tar})),
                 FSDP_ERR_UNSUPPORTED, "f.pt: legacy torch.save format");
    ASSERT_ERROR(
        open_and_close(torch_scratch(t, "f.pt", (torch_bytes){other_tar, sizeof other_tar})),
        FSDP_ERR_FORMAT, "f.pt: not a file of torch.save, but a tar archive: unpack it first");
    ASSERT_ERROR(open_and_close(torch_fixture("script.pt")), FSDP_ERR_UNSUPPORTED,
                 "a TorchScript program; save its parameters in torch: "
                 "torch.save(torch.jit.load(FILE, map_location=\"cpu\").state_dict(), "
                 "NEW_FILE)");
    ASSERT_ERROR(open_and_close(torch_fixture("make_torch.py")), FSDP_ERR_FORMAT,
                 "make_torch.py: not a file of torch.save, but text that begins with '");
    ASSERT_ERROR(open_and_close(torch_fixture("list.pt")), FSDP_ERR_FORMAT,
                 "list.pt: expected a dict of tensors, found a list");
    ASSERT_ERROR(open_and_close(torch_fixture("optimizer.pt")), FSDP_ERR_FORMAT,
                 "optimizer.pt: no tensors in its dict, nor in the dicts 'state_dict', "
                 "'model_state_dict' and 'model' in it");
    ASSERT_ERROR(open_and_close(torch_fixture("absent.pt")), FSDP_ERR_NOT_FOUND, "cannot open");
    ASSERT_OK(open_and_close(torch_fixture("empty.pt")));
    check_changed(t, "no_crc.pt", CHANGE("no_crc/data.pkl", "no_crc/data.pkx"), FSDP_ERR_FORMAT,
                  "not a file of torch.save: it has no data.pkl");
    check_changed(t, "no_crc.pt", CHANGE("3\nPK\7\10", "11PK\7\10"), FSDP_ERR_UNSUPPORTED,
                  "version 11 of the format, newest known is 10");
    check_changed(t, "no_crc.pt", CHANGE("3\nPK\7\10", "x\nPK\7\10"), FSDP_ERR_FORMAT,
                  "record 'version' is not a number");
    check_changed(t, "no_crc.pt", CHANGE("littlePK", "LittlePK"), FSDP_ERR_FORMAT,
                  "record 'byteorder' is neither 'little' nor 'big'");
}

/* The record is cut to three bytes, by its sizes in the directory and the descriptor after it. */
TEST(big_endian_files_are_refused_by_name)
{
    torch_bytes file = torch_fixture_bytes(t, "no_crc.pt");
    CHECK_HERE();
    memcpy(file.data + torch_find(t, file, 0, "little", 6), "bigPK\7\10\0\0\0\0", 11);
    size_t central =
        torch_find(t, file, torch_find(t, file, 0, "PK\1\2", 4), "no_crc/byteorder", 16);
    CHECK_HERE();
    file.data[central - 46 + 20] = 3;
    file.data[central - 46 + 24] = 3;
    ASSERT_ERROR(open_and_close(torch_scratch(t, "f.pt", file)), FSDP_ERR_UNSUPPORTED,
                 "f.pt: byteorder 'big'; load it in torch on a little-endian machine and save it");
    fsdp_free(file.data);
}

/* {"w": tensor, "w": tensor} cannot come from Python. */
TEST(a_name_that_is_there_twice_is_refused)
{
    check_changed(t, "no_crc.pt",
                  CHANGE("OrderedDict\nq\n)Rq\13tq\14Rq\rs.", "OrderedDict\n)RtRq\2sh\1h\2\x94s."),
                  FSDP_ERR_FORMAT, "tensor 'w' is there twice");
}

/* ---- damage ---------------------------------------------------------------------------------- */

static const char *const damaged[] = {"strides.pt", "values_4.pt"};

/* The bytes are a file in memory that is changed in place. */
static int memory_file(fsdp_test *t, torch_bytes bytes, char path[32])
{
    int fd = memfd_create("torch", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes.data, bytes.bytes) != (ssize_t)bytes.bytes)
        fsdp_test_fail(t, __FILE__, __LINE__, "no file in memory");
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

TEST(files_cut_at_any_byte_are_refused)
{
    for (size_t f = 0; f < FSDP_LENGTH(damaged); f++) {
        char path[32];
        torch_bytes file = torch_fixture_bytes(t, damaged[f]);
        int fd = memory_file(t, file, path);
        CHECK_HERE();
        for (size_t bytes = file.bytes; bytes-- > 0;) {
            ASSERT(ftruncate(fd, (off_t)bytes) == 0);
            fsdp_status status = open_and_close(path);
            if (status != FSDP_ERR_FORMAT || !strstr(fsdp_last_error(), path))
                FAIL("%s cut at %zu: %s: %s", damaged[f], bytes, fsdp_status_name(status),
                     status ? fsdp_last_error() : "");
        }
        close(fd);
        fsdp_free(file.data);
    }
}

static bool same_entries(const fsdp_torch_file *a, const fsdp_torch_file *b)
{
    if (fsdp_torch_file_count(a) != fsdp_torch_file_count(b))
        return false;
    for (size_t i = 0; i < fsdp_torch_file_count(a); i++) {
        const fsdp_checkpoint_entry *x = fsdp_torch_file_at(a, i), *y = fsdp_torch_file_at(b, i);
        if (strcmp(x->name, y->name) != 0 || strcmp(x->dtype_name, y->dtype_name) != 0 ||
            x->ndim != y->ndim || memcmp(x->shape, y->shape, (size_t)x->ndim * 8) != 0 ||
            memcmp(x->data, y->data, x->bytes) != 0)
            return false;
    }
    return true;
}

/* All data of small files have checksums: a file with one bit flipped has the same tensors (the bit
 * was in a date, or in padding) or is refused. One bit of every byte is tried. */
TEST(files_with_a_bit_flipped_are_refused_or_the_same)
{
    for (size_t f = 0; f < FSDP_LENGTH(damaged); f++) {
        fsdp_torch_file *whole, *flipped;
        size_t refused = 0;
        char path[32];
        torch_bytes file = torch_fixture_bytes(t, damaged[f]);
        int fd = memory_file(t, file, path);
        CHECK_HERE();
        ASSERT_OK(fsdp_torch_file_open(torch_fixture(damaged[f]), &whole));
        for (size_t i = 0; i < file.bytes; i++) {
            unsigned char byte = file.data[i] ^ (unsigned char)(1u << i % 8);
            ASSERT(pwrite(fd, &byte, 1, (off_t)i) == 1);
            if (fsdp_torch_file_open(path, &flipped) != FSDP_OK) {
                refused++;
            } else {
                if (!same_entries(whole, flipped))
                    FAIL("%s: byte %zu changes a tensor without an error", damaged[f], i);
                fsdp_torch_file_close(flipped);
            }
            ASSERT(pwrite(fd, &file.data[i], 1, (off_t)i) == 1);
        }
        ASSERT(refused > file.bytes / 4);
        fsdp_torch_file_close(whole);
        close(fd);
        fsdp_free(file.data);
    }
}

TEST(running_out_of_memory_is_an_error)
{
    for (long n = 1; n < 200; n++) {
        fsdp_alloc_fail_at(n);
        fsdp_status status = open_and_close(torch_fixture("strides.pt"));
        fsdp_alloc_fail_at(0);
        if (status == FSDP_OK) {
            ASSERT(n > 10);
            return;
        }
        ASSERT_INT(status, FSDP_ERR_NOMEM);
    }
    FAIL("it never succeeds");
}
