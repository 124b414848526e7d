/* Token files of other programs: datasets of Megatron, and numbers of several types without a
 * header. */
#include <stdio.h>
#include <string.h>

#include <fsdp/data.h>

#include "src/base/io.h"
#include "src/base/str.h"
#include "tests/test.h"

static const fsdp_dataset_options causal = {
    .task = FSDP_TASK_CAUSAL_LM, .max_length = 3, .vocab_size = 300};

static char *path_of(fsdp_test *t, const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", fsdp_test_dir(t), name);
    return path;
}

static void write_file(fsdp_test *t, const char *name, const fsdp_str *s)
{
    ASSERT_OK(fsdp_file_write(path_of(t, name), s->data, s->len));
}

static void put(fsdp_str *s, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        const char byte = (char)(value >> 8 * i & 0xff);
        fsdp_str_append(s, &byte, 1);
    }
}

/* Tokens 10, 11, ... as numbers of `width` bytes. */
static void write_tokens(fsdp_test *t, const char *name, int count, int width)
{
    fsdp_str s = {0};
    for (int i = 0; i < count; i++)
        put(&s, (uint64_t)(10 + i), width);
    write_file(t, name, &s);
    fsdp_str_fini(&s);
}

/* Megatron's index of sequences of 3 and `last` tokens. `width` is the bytes of a token. */
static void put_index(fsdp_str *s, unsigned code, int width, int last)
{
    fsdp_str_append(s, "MMIDIDX\0", 9);
    put(s, 1, 8);
    put(s, code, 1);
    put(s, 2, 8);
    put(s, 3, 8);
    put(s, 3, 4);
    put(s, (uint64_t)last, 4);
    put(s, 0, 8);
    put(s, (uint64_t)(3 * width), 8);
    for (uint64_t i = 0; i < 3; i++)
        put(s, i, 8);
}

static void check_rows(fsdp_test *t, const char *path, const fsdp_dataset_options *options)
{
    fsdp_dataset *set;
    fsdp_example e = {0};
    ASSERT_OK(fsdp_dataset_open(path, options, &set));
    ASSERT_INT(fsdp_dataset_len(set), 2);
    ASSERT_OK(fsdp_dataset_get(set, 1, &e));
    ASSERT_INT(e.source.len, 3);
    ASSERT_INT(e.labels.len, 4);
    for (int i = 0; i < 4; i++)
        ASSERT_INT(e.labels.ids[i], 13 + i);
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
}

TEST(megatrons_datasets_are_read_as_one_stream)
{
    static const struct {
        unsigned code;
        int width;
    } types[] = {{1, 1}, {3, 2}, {8, 2}, {4, 4}, {5, 8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        fsdp_str index = {0};
        write_tokens(t, "a.bin", 8, types[i].width);
        put_index(&index, types[i].code, types[i].width, 5);
        write_file(t, "a.idx", &index);
        fsdp_str_fini(&index);
        CHECK_HERE();
        check_rows(t, path_of(t, "a.bin"), &causal);
        check_rows(t, path_of(t, "a"), &causal);
        check_rows(t, path_of(t, "a.idx"), &causal);
        check_rows(t, fsdp_test_dir(t), &causal);
        CHECK_HERE();
    }
}

TEST(an_index_that_does_not_fit_is_an_error)
{
    static const struct {
        size_t at;
        unsigned char byte;
        int drop; /* bytes at the end that are missing */
        const char *message;
    } cases[] = {
        {0, 'X', 0, "not the index of a dataset of Megatron"},
        {9, 2, 0, "version 2 of Megatron's index"},
        {17, 6, 0, "type 6 of its tokens is not an integer"},
        {17, 200, 0, "type 200"},
        {18, 3, 0, "bytes do not fit 3 sequences"},
        {25, 0x80, 0, "do not fit"},
        {33, 0xff, 0, "do not fit"},
        {0, 'M', 1, "truncated?"},
        {0, 'M', 60, "not the index"},
        {34, 4, 0, "sequence 1 of 5 tokens begins at byte 6, not 8"},
        {38, 4, 0, "its sequences have 14 bytes, the .bin file next to it 16"},
        {50, 1, 0, "sequence 1"},
        {41, 0x80, 0, "sequence 1 has a length of -2147483"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_str index = {0};
        fsdp_dataset *set = NULL;
        write_tokens(t, "a.bin", 8, 2);
        put_index(&index, 8, 2, 5);
        index.data[cases[i].at] = (char)cases[i].byte;
        index.len -= (size_t)cases[i].drop;
        write_file(t, "a.idx", &index);
        fsdp_str_fini(&index);
        CHECK_HERE();
        ASSERT_ERROR(fsdp_dataset_open(path_of(t, "a.bin"), &causal, &set), FSDP_ERR_FORMAT,
                     cases[i].message);
        ASSERT_ERROR(FSDP_ERR_FORMAT, FSDP_ERR_FORMAT, "a.idx: ");
    }
    fsdp_str legacy = {0};
    fsdp_dataset *set = NULL;
    fsdp_str_append(&legacy, "TNTIDX\0\0", 8);
    write_file(t, "a.idx", &legacy);
    fsdp_str_fini(&legacy);
    ASSERT_ERROR(fsdp_dataset_open(path_of(t, "a.bin"), &causal, &set), FSDP_ERR_UNSUPPORTED,
                 "a.idx: the older index of fairseq");
}

TEST(numbers_without_a_header_have_the_type_that_is_given)
{
    static const struct {
        fsdp_token_dtype dtype;
        int width;
    } types[] = {{FSDP_TOKENS_DEFAULT, 2},
                 {FSDP_TOKENS_U16, 2},
                 {FSDP_TOKENS_U8, 1},
                 {FSDP_TOKENS_I32, 4},
                 {FSDP_TOKENS_I64, 8}};
    fsdp_dataset_options options = causal;
    fsdp_dataset *set = NULL;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        options.token_dtype = types[i].dtype;
        write_tokens(t, "a.bin", 8, types[i].width);
        check_rows(t, path_of(t, "a.bin"), &options);
        CHECK_HERE();
    }
    options.token_dtype = FSDP_TOKENS_I32;
    write_tokens(t, "a.bin", 9, 2);
    ASSERT_ERROR(fsdp_dataset_open(path_of(t, "a.bin"), &options, &set), FSDP_ERR_FORMAT,
                 "18 bytes: without llm.c's header it is int32 after int32");
    fsdp_str s = {0};
    for (int i = 0; i < 8; i++)
        put(&s, i == 5 ? UINT64_C(0x100000005) : 5, 8);
    write_file(t, "a.bin", &s);
    options.token_dtype = FSDP_TOKENS_I64;
    ASSERT_ERROR(fsdp_dataset_open(path_of(t, "a.bin"), &options, &set), FSDP_ERR_FORMAT,
                 "token 5 is 4294967301, but ids of the model are below its vocab_size 300");
    s.len = 0;
    for (int i = 0; i < 8; i++)
        put(&s, i == 2 ? UINT64_MAX : 5, 4);
    write_file(t, "a.bin", &s);
    fsdp_str_fini(&s);
    options.token_dtype = FSDP_TOKENS_I32; /* -1 */
    ASSERT_ERROR(fsdp_dataset_open(path_of(t, "a.bin"), &options, &set), FSDP_ERR_FORMAT,
                 "token 2 is 4294967295");
}

/* Numbers of 32 and 64 bits, read as the default of 16, would be trained on as tokens: most are 0.
 * Short files, and files for which the type is given, are taken as they are. */
TEST(wider_numbers_are_not_taken_for_tokens)
{
    fsdp_dataset *dataset;
    for (int width = 2; width <= 8; width *= 2) {
        fsdp_dataset_options options = causal;
        write_tokens(t, "a.bin", 64, width);
        if (width == 2)
            ASSERT_OK(fsdp_dataset_open(path_of(t, "a.bin"), &options, &dataset));
        else
            ASSERT_ERROR(fsdp_dataset_open(path_of(t, "a.bin"), &options, &dataset),
                         FSDP_ERR_FORMAT,
                         width == 4 ? "a.bin: read as uint16, the default, every second of the "
                                      "tokens are 0 or as small as the upper halves of larger "
                                      "numbers: the tokens are int32; --token-dtype int32 reads"
                                    : "the tokens are int64; --token-dtype int64 reads them");
        options.token_dtype = width == 4 ? FSDP_TOKENS_I32 : FSDP_TOKENS_U16;
        if (width == 2)
            fsdp_dataset_close(dataset);
        ASSERT_OK(fsdp_dataset_open(path_of(t, "a.bin"), &options, &dataset));
        fsdp_dataset_close(dataset);
        write_tokens(t, "a.bin", 120 / width, width);
        ASSERT_OK(fsdp_dataset_open(path_of(t, "a.bin"), &causal, &dataset));
        fsdp_dataset_close(dataset);
    }
}

/* Ids of a large vocabulary have upper halves up to 3. A stream of uint16 may have small tokens at
 * many places, but not at every second one, or at all of them. */
TEST(small_tokens_are_tokens)
{
    static const struct {
        uint64_t odd, even, last;
        bool wide;
    } cases[] = {{0, 5, 0, true},  {3, 60000, 3, true}, {4, 60000, 4, false},
                 {0, 5, 9, false}, {1, 2, 1, false},    {0, 0, 0, false}};
    fsdp_dataset_options options = causal;
    options.vocab_size = 65536;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_str s = {0};
        fsdp_dataset *dataset;
        for (int k = 0; k < 100; k++) {
            put(&s, cases[i].even, 2);
            put(&s, k < 99 ? cases[i].odd : cases[i].last, 2);
        }
        write_file(t, "a.bin", &s);
        fsdp_str_fini(&s);
        if (cases[i].wide) {
            ASSERT_ERROR(fsdp_dataset_open(path_of(t, "a.bin"), &options, &dataset),
                         FSDP_ERR_FORMAT, "--token-dtype int32");
            continue;
        }
        ASSERT_OK(fsdp_dataset_open(path_of(t, "a.bin"), &options, &dataset));
        fsdp_dataset_close(dataset);
    }
}
