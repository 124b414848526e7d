/* Token files: llm.c's and nanoGPT's, written here byte by byte. */
#include <fsdp/data.h>

#include <stdio.h>
#include <string.h>

#include "src/base/io.h"
#include "tests/test.h"

enum {
    X = FSDP_IGNORE_INDEX,
    HEADER = 1024,
    PATH = 600
};

static void put_u32(unsigned char *p, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(value >> 8 * i);
}

/* Write DIR/name, whose token i is first + i, and store its path in `path`. `width` 0: nanoGPT's
 * format, without a header. */
static void write_tokens(fsdp_test *t, const char *name, int width, uint32_t first, int count,
                         char path[PATH])
{
    static unsigned char bytes[HEADER + 4 * 5000];
    unsigned char *at = bytes;
    ASSERT(count <= 5000);
    snprintf(path, PATH, "%s/%s", fsdp_test_dir(t), name);
    if (width) {
        memset(bytes, 0, HEADER);
        put_u32(bytes, width == 2 ? 20240520 : 20240801);
        put_u32(bytes + 4, width == 2 ? 1 : 7);
        put_u32(bytes + 8, (uint32_t)count);
        at += HEADER;
    }
    for (int i = 0; i < count; i++) {
        unsigned char token[4];
        put_u32(token, first + (uint32_t)i);
        memcpy(at, token, width == 4 ? 4 : 2);
        at += width == 4 ? 4 : 2;
    }
    ASSERT_OK(fsdp_file_write(path, bytes, (size_t)(at - bytes)));
}

static const fsdp_dataset_options causal = {.task = FSDP_TASK_CAUSAL_LM, .max_length = 4};

/* Check that row `index` begins with token `first` and has the token that follows its last one. */
static void check_row(fsdp_test *t, const fsdp_dataset *dataset, int64_t index, int32_t first)
{
    fsdp_example e = {0};
    ASSERT_OK(fsdp_dataset_get(dataset, index, &e));
    ASSERT_INT(e.source.len, 4);
    ASSERT_INT(e.labels.len, 5);
    ASSERT_INT(e.position_ids.len, 0);
    for (int32_t i = 0; i < 5; i++) {
        ASSERT_INT(e.labels.ids[i], first + i);
        if (i < 4)
            ASSERT_INT(e.source.ids[i], first + i);
    }
    fsdp_example_fini(&e);
}

/* 13 tokens are 3 rows of 4 and the token that follows. In 12 tokens, the last four have no
 * successor. */
TEST(every_kind_of_file_is_cut_into_rows)
{
    static const int widths[] = {0, 2, 4};
    for (size_t i = 0; i < 3; i++)
        for (int count = 12; count <= 13; count++) {
            char path[PATH];
            fsdp_dataset *dataset;
            const int32_t first = widths[i] == 4 ? 100000 : 60000;
            write_tokens(t, "a.bin", widths[i], (uint32_t)first, count, path);
            CHECK_HERE();
            ASSERT_OK(fsdp_dataset_open(path, &causal, &dataset));
            ASSERT_INT(fsdp_dataset_len(dataset), count == 13 ? 3 : 2);
            for (int64_t row = 0; row < fsdp_dataset_len(dataset); row++) {
                check_row(t, dataset, row, first + 4 * (int32_t)row);
                CHECK_HERE();
            }
            fsdp_dataset_close(dataset);
        }
}

TEST(rows_have_1024_tokens_by_default)
{
    char path[PATH];
    fsdp_dataset *dataset;
    fsdp_example e = {0};
    const fsdp_dataset_options options = {.task = FSDP_TASK_CAUSAL_LM};
    write_tokens(t, "a.bin", 2, 0, 4097, path);
    CHECK_HERE();
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    ASSERT_INT(fsdp_dataset_len(dataset), 4);
    ASSERT_OK(fsdp_dataset_get(dataset, 3, &e));
    ASSERT_INT(e.source.len, 1024);
    ASSERT_INT(e.labels.ids[1024], 4096);
    fsdp_example_fini(&e);
    fsdp_dataset_close(dataset);
}

/* Every token has a label, including the last one of a row: llm.c's inputs [0, T) and targets [1, T
 * + 1). */
TEST(a_batch_has_a_label_for_every_token)
{
    char path[PATH];
    fsdp_dataset *dataset;
    fsdp_batch *batch;
    const int64_t indices[] = {1, 0};
    const fsdp_batch_format format = {.task = FSDP_TASK_CAUSAL_LM};
    write_tokens(t, "a.bin", 0, 10, 9, path);
    CHECK_HERE();
    ASSERT_OK(fsdp_dataset_open(path, &causal, &dataset));
    ASSERT_OK(fsdp_collate(dataset, indices, 2, &format, &batch));
    ASSERT_INT(batch->rows, 2);
    ASSERT_INT(batch->label_tokens, 8);
    ASSERT_INT(batch->labels[3], 18);
    ASSERT_INT(batch->labels[7], 14);
    fsdp_batch_release(batch);
    fsdp_dataset_close(dataset);
}

/* Rows [7 1 2 7 | 3], then [3 4 7 5 | 7]: a successor that begins a document is not a label. */
TEST(documents_begin_at_the_document_token)
{
    static const uint16_t tokens[] = {7, 1, 2, 7, 3, 4, 7, 5, 7};
    const fsdp_batch_format format = {.task = FSDP_TASK_CAUSAL_LM};
    fsdp_dataset_options options = causal;
    const int64_t indices[] = {0, 1};
    char path[PATH];
    fsdp_dataset *dataset;
    fsdp_batch *batch;
    snprintf(path, PATH, "%s/a.bin", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, tokens, sizeof tokens));
    options.split_documents = true;
    options.document_token = 7;
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    ASSERT_OK(fsdp_collate(dataset, indices, 2, &format, &batch));
    static const int32_t offsets[] = {0, 3, 4, 6, 8}, labels[] = {1, 2, X, 3, 4, X, 5, X};
    ASSERT_INT(batch->rows, 4);
    ASSERT(memcmp(batch->source_offsets, offsets, sizeof offsets) == 0);
    ASSERT(memcmp(batch->labels, labels, sizeof labels) == 0);
    fsdp_batch_release(batch);
    fsdp_dataset_close(dataset);
    options.vocab_size = 7;
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_INVALID,
                 "document token 7 is not an id of the model: 0 to 6");
}

/* Shards are in the order of their names, and "val" must be a word of a name. A shard for a test is
 * not read. A shard that is too short for a row gives none. max_samples may end within any shard.
 */
TEST(a_folder_is_its_shards_and_a_pattern_too)
{
    char path[PATH], pattern[PATH];
    fsdp_dataset *dataset;
    write_tokens(t, "fineweb_train_000002.bin", 2, 300, 13, path);
    write_tokens(t, "fineweb_train_000001.bin", 2, 100, 9, path);
    write_tokens(t, "fineweb_train_0000015.bin", 2, 200, 3, path);
    write_tokens(t, "fineweb_val_000000.bin", 2, 500, 5, path);
    write_tokens(t, "interval.bin", 2, 700, 6, path);
    write_tokens(t, "fineweb-test_000000.bin", 2, 800, 6, path);
    CHECK_HERE();
    fsdp_dataset_options options = causal;
    ASSERT_OK(fsdp_dataset_open(fsdp_test_dir(t), &options, &dataset));
    static const int32_t firsts[] = {100, 104, 300, 304, 308, 700};
    ASSERT_INT(fsdp_dataset_len(dataset), 6);
    for (int64_t row = 0; row < 6; row++) {
        check_row(t, dataset, row, firsts[row]);
        CHECK_HERE();
    }
    fsdp_dataset_close(dataset);
    options.validation = true;
    ASSERT_OK(fsdp_dataset_open(fsdp_test_dir(t), &options, &dataset));
    ASSERT_INT(fsdp_dataset_len(dataset), 1);
    check_row(t, dataset, 0, 500);
    CHECK_HERE();
    fsdp_dataset_close(dataset);
    snprintf(pattern, PATH, "%s/fineweb_*.bin", fsdp_test_dir(t));
    options.max_samples = 4;
    ASSERT_OK(fsdp_dataset_open(pattern, &options, &dataset));
    ASSERT_INT(fsdp_dataset_len(dataset), 4);
    check_row(t, dataset, 3, 304);
    CHECK_HERE();
    fsdp_dataset_close(dataset);
    snprintf(pattern, PATH, "%s/none*.bin", fsdp_test_dir(t));
    ASSERT_ERROR(fsdp_dataset_open(pattern, &options, &dataset), FSDP_ERR_NOT_FOUND,
                 "no file matches");
    snprintf(path, PATH, "%s/fineweb_notes.txt", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, "x", 1));
    snprintf(pattern, PATH, "%s/fineweb_*", fsdp_test_dir(t));
    ASSERT_ERROR(fsdp_dataset_open(pattern, &options, &dataset), FSDP_ERR_INVALID,
                 "is no .bin file");
}

TEST(a_folder_without_files_for_a_purpose_says_so)
{
    char path[PATH];
    fsdp_dataset *dataset;
    fsdp_dataset_options options = causal;
    write_tokens(t, "train.bin", 0, 1, 9, path);
    CHECK_HERE();
    options.validation = true;
    ASSERT_ERROR(
        fsdp_dataset_open(fsdp_test_dir(t), &options, &dataset), FSDP_ERR_NOT_FOUND,
        "no token file with the word 'validation', 'valid', 'val', 'dev' or 'eval' in its name, "
        "and without the word 'test'");
}

/* --- what is wrong with a file --- */

static void refuse(fsdp_test *t, const char *path, size_t bytes, uint32_t word, uint32_t value,
                   const char *message)
{
    static unsigned char file[HEADER + 20];
    fsdp_dataset *dataset = NULL;
    memset(file, 0, sizeof file);
    put_u32(file, 20240520);
    put_u32(file + 4, 1);
    put_u32(file + 8, 10);
    put_u32(file + 4 * word, value);
    ASSERT_OK(fsdp_file_write(path, file, bytes));
    ASSERT_ERROR(fsdp_dataset_open(path, &causal, &dataset), FSDP_ERR_FORMAT, message);
    ASSERT(strstr(fsdp_last_error(), "a.bin: ") && !dataset);
}

TEST(a_bad_file_is_an_error)
{
    char path[PATH];
    fsdp_dataset *dataset = NULL;
    const size_t whole = HEADER + 20;
    snprintf(path, PATH, "%s/a.bin", fsdp_test_dir(t));
    refuse(t, path, whole, 0, 20240522, "magic 20240522 is of no token file");
    refuse(t, path, whole, 1, 2, "version 2 of token files with magic 20240520; 1 is known");
    refuse(t, path, whole - 1, 3, 0, "truncated: 1043 bytes, but its header says 10 tokens");
    refuse(t, path, whole, 2, 9, "too long: 1044 bytes");
    refuse(t, path, whole, 2, 0xffffffff, "truncated");
    refuse(t, path, HEADER - 4, 3, 0, "1020 bytes, shorter than llm.c's header of 1024");
    refuse(t, path, 4, 3, 0, "shorter than llm.c's header");
    refuse(t, path, 3, 3, 0, "3 bytes: without llm.c's header");
    refuse(t, path, 0, 3, 0, "no tokens");
    refuse(t, path, 2, 3, 0, "1 tokens, fewer than a row of 4");
    CHECK_HERE();
    snprintf(path, PATH, "%s/none.bin", fsdp_test_dir(t));
    ASSERT_ERROR(fsdp_dataset_open(path, &causal, &dataset), FSDP_ERR_NOT_FOUND, "none.bin");
    ASSERT_ERROR(fsdp_dataset_open(path, NULL, &dataset), FSDP_ERR_INVALID,
                 "token files are for causal language modeling");
    ASSERT(dataset == NULL);
}

static void refuse_bytes(fsdp_test *t, const void *bytes, size_t n, int64_t vocab_size,
                         fsdp_status status, const char *message)
{
    char path[PATH];
    fsdp_dataset *dataset = NULL;
    fsdp_dataset_options options = causal;
    options.vocab_size = vocab_size;
    snprintf(path, PATH, "%s/a.bin", fsdp_test_dir(t));
    ASSERT_OK(fsdp_file_write(path, bytes, n));
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), status, message);
    ASSERT(strstr(fsdp_last_error(), "a.bin: ") && !dataset);
}

/* All of these could be read as uint16 too. */
TEST(a_bin_file_of_another_kind_is_refused_by_name)
{
    static const unsigned char zip[64] = {'P', 'K', 3, 4}, swapped[64] = {0x01, 0x34, 0xd8, 0x88};
    static const unsigned char npy[64] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 'v'};
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n";
    static const char page[] = "<!DOCTYPE html>\n<html><head><title>Log in</title></head></html>";
    static const char text[] = "First Citizen: Before we proceed any further, hear me speak.";
    static const uint16_t plain[32] = {0};
    char path[PATH];
    fsdp_dataset *dataset;
    refuse_bytes(t, zip, sizeof zip, 0, FSDP_ERR_FORMAT, "a zip archive, as torch.save()");
    refuse_bytes(t, npy, sizeof npy, 0, FSDP_ERR_FORMAT, "array.astype('uint16').tofile");
    refuse_bytes(t, pointer, sizeof pointer - 1, 0, FSDP_ERR_FORMAT, "run 'git lfs pull'");
    refuse_bytes(t, page, sizeof page - 1, 0, FSDP_ERR_FORMAT, "a web page (HTML)");
    refuse_bytes(t, text, sizeof text - 1, 0, FSDP_ERR_FORMAT, "text that begins with 'First");
    refuse_bytes(t, swapped, sizeof swapped, 0, FSDP_ERR_FORMAT, "the big end of each number");
    refuse_bytes(t, plain, sizeof plain, 65537, FSDP_ERR_FORMAT, "cannot hold the 65537 ids");
    CHECK_HERE();
    fsdp_dataset_options options = causal;
    options.vocab_size = 65536;
    snprintf(path, PATH, "%s/a.bin", fsdp_test_dir(t));
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    fsdp_dataset_close(dataset);
}

TEST(a_token_that_is_no_id_is_an_error_with_its_place)
{
    static const int widths[] = {0, 2, 4};
    fsdp_dataset_options options = causal;
    options.vocab_size = 1007;
    for (size_t i = 0; i < 3; i++) {
        char path[PATH];
        fsdp_dataset *dataset = NULL;
        write_tokens(t, "a.bin", widths[i], 1000, 9, path);
        CHECK_HERE();
        ASSERT_ERROR(fsdp_dataset_open(path, &options, &dataset), FSDP_ERR_FORMAT,
                     "a.bin: token 7 is 1007, but ids of the model are below its vocab_size 1007");
        ASSERT(dataset == NULL);
    }
}

/* Files of random bytes, some after a valid header, give rows or an error, never a crash. */
TEST(random_bytes_are_rows_or_errors)
{
    uint32_t state = 3;
    int opened = 0;
    for (int i = 0; i < 400; i++) {
        unsigned char file[HEADER + 200];
        char path[PATH];
        const size_t bytes = i % 4 ? HEADER + (size_t)i / 4 * 2 : (size_t)i;
        for (size_t k = 0; k < sizeof file; k++) {
            state = state * 1664525 + 1013904223;
            file[k] = (unsigned char)(state >> 24);
        }
        const bool wide = i % 4 == 2;
        if (i % 4) {
            put_u32(file, wide ? 20240801 : 20240520);
            put_u32(file + 4, wide ? 7 : 1);
            put_u32(file + 8, (uint32_t)((bytes - HEADER) / (wide ? 4 : 2)));
        }
        snprintf(path, PATH, "%s/a.bin", fsdp_test_dir(t));
        ASSERT_OK(fsdp_file_write(path, file, bytes));
        fsdp_dataset *dataset = NULL;
        if (fsdp_dataset_open(path, &causal, &dataset) != FSDP_OK) {
            ASSERT(strstr(fsdp_last_error(), "a.bin"));
            continue;
        }
        fsdp_example e = {0};
        for (int64_t row = 0; row < fsdp_dataset_len(dataset); row++)
            ASSERT_OK(fsdp_dataset_get(dataset, row, &e));
        fsdp_example_fini(&e);
        fsdp_dataset_close(dataset);
        opened++;
    }
    ASSERT(opened > 200 && opened < 400);
}

/* --- the loader --- */

TEST(any_number_of_workers_loads_the_same_tokens)
{
    char path[PATH];
    fsdp_dataset *dataset;
    fsdp_loader *loaders[2];
    fsdp_dataset_options options = causal;
    options.split_documents = true;
    options.document_token = 77;
    write_tokens(t, "a.bin", 4, 0, 500, path);
    CHECK_HERE();
    ASSERT_OK(fsdp_dataset_open(path, &options, &dataset));
    for (int i = 0; i < 2; i++) {
        const fsdp_loader_options load = {
            .sampler = {.batch_size = 3, .rank = 1, .world_size = 2, .accumulation = 2, .seed = 5},
            .format = {.task = FSDP_TASK_CAUSAL_LM},
            .num_workers = 3 * i};
        ASSERT_OK(fsdp_loader_create(dataset, &load, &loaders[i]));
    }
    for (bool more = true; more;) {
        fsdp_batch *a, *b;
        ASSERT_OK(fsdp_loader_next(loaders[0], &a));
        ASSERT_OK(fsdp_loader_next(loaders[1], &b));
        ASSERT_INT(a == NULL, b == NULL);
        more = a != NULL;
        if (!more)
            break;
        ASSERT_INT(a->rows, b->rows);
        ASSERT_INT(a->source_tokens, b->source_tokens);
        size_t bytes = (size_t)a->source_tokens * sizeof(int32_t);
        ASSERT(memcmp(a->input_ids, b->input_ids, bytes) == 0);
        ASSERT(memcmp(a->labels, b->labels, bytes) == 0);
        ASSERT(memcmp(a->position_ids, b->position_ids, bytes) == 0);
        fsdp_batch_release(a);
        fsdp_batch_release(b);
    }
    for (int i = 0; i < 2; i++)
        fsdp_loader_destroy(loaders[i]);
    fsdp_dataset_close(dataset);
}
