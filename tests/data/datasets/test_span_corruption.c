/* Span corruption: lengths compared with the reference, reconstruction of pieces from examples, the
 * distribution of drawn spans, and datasets of every kind of file. */
#include "src/data/datasets/span_corruption.h"

#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "tests/test.h"

enum {
    SENTINEL = 1000000, /* sentinel of the first span */
    EOS = 1,
    TOKEN = 100, /* token i of a piece is TOKEN + i */
    PATH = 600
};

/* compute_input_and_target_lengths of transformers' run_t5_mlm_flax.py. It also gives 990 tokens
 * for 512 inputs at density 0.5 and mean 32, but its mask of 990 has 511. */
TEST(lengths_are_the_reference_s)
{
    static const struct {
        int inputs;
        double density, mean;
        int tokens, targets;
    } rows[] = {
        {512, 0.15, 3, 568, 114},    {568, 0.15, 3, 630, 126},    {1024, 0.15, 3, 1137, 229},
        {256, 0.15, 3, 284, 58},     {128, 0.15, 3, 141, 29},     {64, 0.15, 3, 70, 14},
        {100, 0.15, 3, 110, 22},     {512, 0.5, 3, 766, 512},     {511, 0.5, 3, 765, 510},
        {512, 0.3, 3, 639, 257},     {512, 0.1, 2, 538, 82},      {512, 0.25, 8, 655, 185},
        {2048, 0.15, 10, 2366, 392}, {114, 0.15, 3, 126, 26},     {333, 0.2, 2.5, 378, 107},
        {77, 0.35, 3.5, 102, 47},    {4096, 0.15, 20, 4775, 753},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const fsdp_span_corruption noise = {rows[i].density, rows[i].mean};
        int64_t tokens, targets, spans;
        ASSERT_OK(fsdp_span_corruption_lengths(&noise, rows[i].inputs, &tokens, &targets, &spans));
        ASSERT_INT(tokens, rows[i].tokens);
        ASSERT_INT(targets, rows[i].targets);
        ASSERT_INT(tokens + 2 * spans + 2, rows[i].inputs + targets);
    }
    int64_t tokens, targets;
    ASSERT_OK(fsdp_span_corruption_lengths(NULL, 512, &tokens, &targets, NULL));
    ASSERT_INT(tokens, 568);
    ASSERT_INT(targets, 114);
}

/* Reconstruct the piece from inputs and targets: each sentinel, in order, replaces the tokens that
 * follow it in the targets. */
static void check_example(fsdp_test *t, const fsdp_span_lengths *n, const fsdp_example *e)
{
    const int32_t *in = e->source.ids, *out = e->labels.ids;
    int32_t next = TOKEN;
    size_t at = 0;
    int64_t spans = 0, run = 0;
    ASSERT_INT(e->source.len, n->inputs);
    ASSERT_INT(e->labels.len, n->targets);
    for (size_t i = 0; i + 1 < e->source.len; i++) {
        if (in[i] < SENTINEL - n->spans) {
            ASSERT_INT(in[i], next++);
            run++;
            continue;
        }
        ASSERT(run > 0); /* spans are not adjacent, and none begins the piece */
        ASSERT_INT(in[i], SENTINEL - spans);
        ASSERT_INT(out[at++], SENTINEL - spans);
        const size_t first = at;
        while (at + 1 < e->labels.len && out[at] < SENTINEL - n->spans)
            ASSERT_INT(out[at++], next++);
        ASSERT(at > first);
        spans++;
        run = 0;
    }
    ASSERT_INT(run, 0);
    ASSERT_INT(spans, n->spans);
    ASSERT_INT(next, TOKEN + n->piece);
    ASSERT_INT(at + 1, e->labels.len);
    ASSERT_INT(in[e->source.len - 1], EOS);
    ASSERT_INT(out[at], EOS);
}

/* At densities below one half, every length is possible. Above, a length that is not possible is
 * refused. */
TEST(every_token_is_once_in_inputs_or_targets)
{
    static const double densities[] = {0.01, 0.1, 0.15, 0.3, 0.45, 0.5, 0.7, 0.9};
    static const double means[] = {1, 1.5, 3, 5, 20};
    fsdp_example e = {0};
    int32_t piece[8000];
    int checked = 0;
    for (int32_t i = 0; i < 8000; i++)
        piece[i] = TOKEN + i;
    for (size_t d = 0; d < 8; d++)
        for (size_t m = 0; m < 5; m++)
            for (int64_t inputs = 3; inputs < 700; inputs += UNDER_SANITIZER ? 37 : 1) {
                const fsdp_span_corruption noise = {densities[d], means[m]};
                fsdp_span_lengths n;
                if (fsdp_span_lengths_find(&noise, inputs, &n) != FSDP_OK) {
                    ASSERT(densities[d] >= 0.5);
                    continue;
                }
                ASSERT_INT(n.inputs, inputs);
                ASSERT(n.piece <= 8000);
                e.source.len = e.labels.len = 0;
                ASSERT_OK(
                    fsdp_span_corrupt(&n, (uint64_t)inputs * 977 + d, piece, SENTINEL, EOS, &e));
                check_example(t, &n, &e);
                CHECK_HERE();
                checked++;
            }
    ASSERT(checked > (UNDER_SANITIZER ? 400 : 20000));
    fsdp_example_fini(&e);
}

/* 4 noise tokens of 8 in 2 spans: 3 places to cut them, and 3 to cut the others. Chi-squared with 8
 * degrees of freedom is 8 +- 4; the bound is 6 standard deviations. */
TEST(all_ways_to_cut_are_equally_likely)
{
    enum {
        DRAWS = 9000
    };
    const fsdp_span_corruption noise = {0.5, 2};
    fsdp_span_lengths n;
    fsdp_example e = {0};
    int counts[3][3] = {{0}};
    int32_t piece[8];
    for (int32_t i = 0; i < 8; i++)
        piece[i] = TOKEN + i;
    ASSERT_OK(fsdp_span_lengths_find(&noise, 7, &n));
    ASSERT_INT(n.piece, 8);
    for (uint64_t key = 0; key < DRAWS; key++) {
        int kept = 0, replaced = 0;
        e.source.len = e.labels.len = 0;
        ASSERT_OK(fsdp_span_corrupt(&n, key * 0x9E3779B97F4A7C15u, piece, SENTINEL, EOS, &e));
        check_example(t, &n, &e);
        CHECK_HERE();
        while (e.source.ids[kept] != SENTINEL)
            kept++;
        while (e.labels.ids[1 + replaced] != SENTINEL - 1)
            replaced++;
        ASSERT(kept >= 1 && kept <= 3 && replaced >= 1 && replaced <= 3);
        counts[kept - 1][replaced - 1]++;
    }
    double chi = 0, expected = DRAWS / 9.0;
    for (int i = 0; i < 9; i++)
        chi += (counts[i / 3][i % 3] - expected) * (counts[i / 3][i % 3] - expected) / expected;
    ASSERT(chi < 32);
    fsdp_example_fini(&e);
}

/* In every piece, 85 of 568 tokens are in 28 spans. No piece begins with a span, and each ends with
 * one, so the middle has slightly fewer: 0.1466, like the mean of 20,000 masks of the reference. */
TEST(density_and_mean_length_are_as_asked)
{
    enum {
        KEYS = 2000
    };
    const fsdp_span_corruption noise = {0.15, 3};
    fsdp_span_lengths n;
    fsdp_example e = {0};
    int32_t piece[568];
    int64_t middle = 0, longest = 0, single = 0;
    for (int32_t i = 0; i < 568; i++)
        piece[i] = TOKEN + i;
    ASSERT_OK(fsdp_span_lengths_find(&noise, 512, &n));
    ASSERT_INT(n.noise, 85);
    ASSERT_INT(n.spans, 28);
    for (uint64_t key = 0; key < KEYS; key++) {
        int64_t run = 0;
        e.source.len = e.labels.len = 0;
        ASSERT_OK(fsdp_span_corrupt(&n, key, piece, SENTINEL, EOS, &e));
        for (size_t i = 1; i < e.labels.len; i++) {
            const int32_t id = e.labels.ids[i];
            const bool token = id >= TOKEN && id < TOKEN + 568;
            middle += token && id >= TOKEN + 142 && id < TOKEN + 426;
            single += !token && run == 1;
            run = token ? run + 1 : 0;
            longest = run > longest ? run : longest;
        }
    }
    fsdp_example_fini(&e);
    ASSERT_NEAR((double)middle / (284.0 * KEYS), 0.1466, 0.002);
    /* A span has one token with probability 27 / 84. */
    ASSERT_NEAR((double)single / (28.0 * KEYS), 27.0 / 84, 0.015);
    ASSERT(longest > 12);
}

TEST(what_cannot_be_is_refused)
{
    int64_t tokens;
    const fsdp_span_corruption whole = {1.5, 3}, negative = {-0.1, 3}, short_spans = {0.15, 0.5},
                               jumps = {0.5, 1};
    ASSERT_ERROR(fsdp_span_corruption_lengths(&whole, 512, &tokens, NULL, NULL), FSDP_ERR_INVALID,
                 "noise density 1.5");
    ASSERT_ERROR(fsdp_span_corruption_lengths(&negative, 512, &tokens, NULL, NULL),
                 FSDP_ERR_INVALID, "noise density -0.1");
    ASSERT_ERROR(fsdp_span_corruption_lengths(&short_spans, 512, &tokens, NULL, NULL),
                 FSDP_ERR_INVALID, "span length 0.5");
    ASSERT_ERROR(fsdp_span_corruption_lengths(NULL, 2, &tokens, NULL, NULL), FSDP_ERR_INVALID,
                 "exactly 2 tokens");
    ASSERT_ERROR(fsdp_span_corruption_lengths(NULL, INT64_C(1) << 40, &tokens, NULL, NULL),
                 FSDP_ERR_INVALID, "1099511627776");
    ASSERT_ERROR(
        fsdp_span_corruption_lengths(&(fsdp_span_corruption){0.5, 32}, 512, &tokens, NULL, NULL),
        FSDP_ERR_INVALID, "990 gives 511");
    ASSERT_ERROR(fsdp_span_corruption_lengths(&jumps, 4, &tokens, NULL, NULL), FSDP_ERR_INVALID,
                 "exactly 4 tokens");
}

/* ---- datasets ---- */

static const char *const texts[] = {
    "The quick brown fox jumps over the lazy dog while seventeen cats look on in silence.",
    "Fully sharded training keeps of each parameter, gradient and moment one part on each rank.",
    "A tool that lists files; it prints their names, one a line, and says when there are none."};

static fsdp_tokenizer *open_tokenizer(fsdp_test *t)
{
    fsdp_tokenizer *tokenizer = NULL;
    if (fsdp_tokenizer_open(fsdp_test_path("../data/tokenizers/t5"), &tokenizer) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return tokenizer;
}

static const char *write_file(fsdp_test *t, const char *name, const void *bytes, size_t size,
                              char path[PATH])
{
    snprintf(path, PATH, "%s/%s", fsdp_test_dir(t), name);
    if (fsdp_file_write(path, bytes, size) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return path;
}

/* Write the ids of the texts as nanoGPT's file, each text followed by </s>. */
static const char *write_tokens(fsdp_test *t, const fsdp_tokenizer *tokenizer, char path[PATH])
{
    unsigned char bytes[4000];
    fsdp_token_list ids = {0};
    for (size_t i = 0; i < 3; i++)
        if (fsdp_tokenizer_encode(tokenizer, texts[i], strlen(texts[i]), 0, &ids) != FSDP_OK)
            fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    for (size_t i = 0; i < ids.len; i++) {
        bytes[2 * i] = (unsigned char)(ids.ids[i] & 255);
        bytes[2 * i + 1] = (unsigned char)(ids.ids[i] >> 8);
    }
    write_file(t, "a.bin", bytes, 2 * ids.len, path);
    fsdp_token_list_fini(&ids);
    return path;
}

static const char *write_lines(fsdp_test *t, const char *name, const char *first,
                               const char *before, const char *after, char path[PATH])
{
    char text[4000];
    int n = snprintf(text, sizeof text, "%s", first);
    for (size_t i = 0; i < 3; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%s%s", before, texts[i], after);
    return write_file(t, name, text, (size_t)n, path);
}

static void check_same(fsdp_test *t, const fsdp_dataset *a, const fsdp_dataset *b,
                       const fsdp_draw *draw)
{
    fsdp_example x = {0}, y = {0};
    ASSERT_INT(fsdp_dataset_len(a), fsdp_dataset_len(b));
    for (int64_t i = 0; i < fsdp_dataset_len(a); i++) {
        ASSERT_OK(fsdp_dataset_draw(a, i, draw, &x));
        ASSERT_OK(fsdp_dataset_draw(b, i, draw, &y));
        ASSERT_INT(x.source.len, 16);
        ASSERT_INT(y.source.len, 16);
        ASSERT_INT(x.labels.len, y.labels.len);
        ASSERT(memcmp(x.source.ids, y.source.ids, 16 * sizeof(int32_t)) == 0);
        ASSERT(memcmp(x.labels.ids, y.labels.ids, x.labels.len * sizeof(int32_t)) == 0);
        ASSERT_INT(x.labels.ids[0], 32099);
    }
    fsdp_example_fini(&x);
    fsdp_example_fini(&y);
}

static const fsdp_span_corruption defaults;

/* One document per line, rows of CSV and JSON, and token ids give the same pieces with the same
 * noise. */
TEST(every_form_of_the_texts_gives_the_same_examples)
{
    NEEDS_LIBCSV();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    const fsdp_dataset_options options = {
        .tokenizer = tokenizer, .max_source_length = 16, .span_corruption = &defaults};
    char path[PATH];
    fsdp_dataset *tokens, *other;
    ASSERT_OK(fsdp_dataset_open(write_tokens(t, tokenizer, path), &options, &tokens));
    ASSERT(fsdp_dataset_len(tokens) >= 3);
    const char *paths[6];
    char names[6][PATH];
    paths[0] = write_lines(t, "a.txt", "", "", "\n", names[0]);
    paths[1] = write_lines(t, "blank", " \n\n", "", "\r\n\t\r\n", names[1]);
    paths[2] = write_lines(t, "a.csv", "text,other\n", "\"", "\",x\n", names[2]);
    paths[3] = write_lines(t, "a.jsonl", "", "{\"text\": \"", "\"}\n", names[3]);
    paths[4] = write_lines(t, "b", "\n", "{\"text\": \"", "\", \"id\": 1}\n", names[4]);
    paths[5] = write_lines(t, "B.CSV", "text,other\n", "\"", "\",x\n", names[5]);
    CHECK_HERE();
    for (size_t i = 0; i < 6; i++) {
        ASSERT_OK(fsdp_dataset_open(paths[i], &options, &other));
        check_same(t, tokens, other, &(fsdp_draw){.seed = 3, .epoch = (int64_t)i});
        CHECK_HERE();
        const char *note = fsdp_dataset_note(other);
        const char *expected = i == 4             ? "not used: 'id' (line 2)"
                               : i == 2 || i == 5 ? "not used: 'other'"
                                                  : NULL;
        ASSERT(!note == !expected);
        ASSERT(!note || strstr(note, expected));
        fsdp_dataset_close(other);
    }
    fsdp_dataset_close(tokens);
    fsdp_tokenizer_close(tokenizer);
}

static bool same_noise(const fsdp_dataset *set, const fsdp_draw *a, const fsdp_draw *b)
{
    fsdp_example x = {0}, y = {0};
    bool same = fsdp_dataset_draw(set, 0, a, &x) == FSDP_OK &&
                fsdp_dataset_draw(set, 0, b, &y) == FSDP_OK &&
                memcmp(x.source.ids, y.source.ids, x.source.len * sizeof(int32_t)) == 0;
    fsdp_example_fini(&x);
    fsdp_example_fini(&y);
    return same;
}

TEST(each_epoch_and_seed_has_its_own_draw)
{
    NEEDS_SENTENCEPIECE();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    const fsdp_dataset_options options = {
        .tokenizer = tokenizer, .max_source_length = 40, .span_corruption = &defaults};
    char path[PATH];
    fsdp_dataset *set;
    ASSERT_OK(fsdp_dataset_open(write_lines(t, "a.txt", "", "", "\n", path), &options, &set));
    const fsdp_draw draws[] = {
        {.seed = 0}, {.epoch = 1}, {.epoch = 2}, {.seed = 1}, {.seed = 1, .epoch = 1}};
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < 5; k++)
            ASSERT_INT(same_noise(set, &draws[i], &draws[k]), i == k);
    char *source, *target;
    ASSERT_OK(fsdp_dataset_texts(set, 0, &source, &target));
    ASSERT(strstr(source, "<extra_id_0>") != NULL);
    ASSERT(strstr(target, "<extra_id_1>") != NULL);
    fsdp_text_free(source);
    fsdp_text_free(target);
    fsdp_dataset_close(set);
    fsdp_tokenizer_close(tokenizer);
}

/* Collect all ids of an epoch from `first` on, step by step, in the order of ranks. */
static size_t collect(fsdp_test *t, const fsdp_dataset *set, int world_size, int workers,
                      int64_t first, int32_t *ids, size_t cap)
{
    fsdp_loader *loaders[4];
    size_t n = 0;
    int64_t steps = 0;
    for (int rank = 0; rank < world_size; rank++) {
        const fsdp_loader_options options = {.sampler = {.batch_size = 4 / world_size,
                                                         .rank = rank,
                                                         .world_size = world_size,
                                                         .seed = 7},
                                             .num_workers = workers};
        if (fsdp_loader_create(set, &options, &loaders[rank]) != FSDP_OK) {
            fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
            return 0;
        }
        fsdp_loader_seek(loaders[rank], 2, first);
        steps = fsdp_loader_steps(loaders[rank]);
    }
    for (int64_t step = first; step < steps; step++)
        for (int rank = 0; rank < world_size; rank++) {
            fsdp_batch *batch = NULL;
            if (fsdp_loader_next(loaders[rank], &batch) != FSDP_OK || !batch) {
                fsdp_test_fail(t, __FILE__, __LINE__, "no batch");
                continue;
            }
            for (int32_t i = 0; i < batch->source_tokens && n < cap; i++)
                ids[n++] = batch->input_ids[i];
            for (int32_t i = 0; i < batch->target_tokens && n < cap; i++)
                ids[n++] = batch->labels[i];
            fsdp_batch_release(batch);
        }
    for (int rank = 0; rank < world_size; rank++)
        fsdp_loader_destroy(loaders[rank]);
    return n;
}

/* Inputs and targets are compared by row, so that batches of any size can be compared. */
TEST(ranks_workers_and_resuming_change_nothing)
{
    enum {
        CAP = 20000
    };
    NEEDS_LIBCSV();
    static int32_t expected[CAP], found[CAP];
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    const fsdp_dataset_options options = {.tokenizer = tokenizer,
                                          .max_source_length = 40,
                                          .source_column = "text",
                                          .max_samples = 41,
                                          .span_corruption = &defaults};
    fsdp_dataset *set;
    ASSERT_OK(fsdp_dataset_open(fsdp_test_path("../data/debian/validation.csv"), &options, &set));
    ASSERT_INT(fsdp_dataset_len(set), 41);
    const size_t n = collect(t, set, 4, 0, 0, expected, CAP);
    CHECK_HERE();
    ASSERT(n > 41 * 40 && n < CAP);
    ASSERT_INT(collect(t, set, 4, 3, 0, found, CAP), n);
    ASSERT(memcmp(expected, found, n * sizeof *found) == 0);
    const size_t left = collect(t, set, 4, 1, 6, found, CAP);
    CHECK_HERE();
    ASSERT(left > 0 && left < n);
    ASSERT(memcmp(expected + n - left, found, left * sizeof *found) == 0);
    fsdp_sampler order = {.samples = 41, .batch_size = 4, .world_size = 1, .seed = 7};
    const fsdp_draw draw = {.seed = 7, .epoch = 2};
    fsdp_example e = {0};
    size_t at = 0;
    for (int64_t position = 0; position < 41; position++) {
        ASSERT_OK(fsdp_dataset_draw(set, fsdp_sampler_order(&order, 2, position), &draw, &e));
        ASSERT(memcmp(expected + at, e.source.ids, e.source.len * sizeof(int32_t)) == 0);
        at += e.source.len;
        ASSERT(memcmp(expected + at, e.labels.ids, e.labels.len * sizeof(int32_t)) == 0);
        at += e.labels.len;
    }
    ASSERT_INT(at, n);
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
    fsdp_tokenizer_close(tokenizer);
}

TEST(files_and_tokenizers_that_do_not_fit_are_refused)
{
    NEEDS_SENTENCEPIECE();
    fsdp_tokenizer *tokenizer = open_tokenizer(t);
    CHECK_HERE();
    char path[PATH], bad[PATH];
    fsdp_dataset *set = NULL;
    fsdp_dataset_options options = {.max_source_length = 16, .span_corruption = &defaults};
    write_lines(t, "a.txt", "", "", "\n", path);
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &set), FSDP_ERR_INVALID, "needs a tokenizer");
    options.tokenizer = tokenizer;
    options.vocab_size = 32000;
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &set), FSDP_ERR_INVALID, "32100 ids");
    options.vocab_size = 0;
    options.max_source_length = 4096;
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &set), FSDP_ERR_INVALID,
                 "spiece.model: 100 sentinels");
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &set), FSDP_ERR_INVALID, "227 noise spans");
    options.max_source_length = 512;
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &set), FSDP_ERR_FORMAT,
                 "fewer than a row of 568");
    options.max_source_length = 16;
    options.split = FSDP_SPLIT_TRAIN;
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &set), FSDP_ERR_UNSUPPORTED, "no split");
    options.split = FSDP_SPLIT_ALL;
    options.task = FSDP_TASK_CAUSAL_LM;
    ASSERT_ERROR(fsdp_dataset_open(path, &options, &set), FSDP_ERR_INVALID, "sequence");
    options.task = FSDP_TASK_SEQ2SEQ;
    write_file(t, "bad.txt", "fine\nnot \xFF utf-8\n", 17, bad);
    CHECK_HERE();
    ASSERT_ERROR(fsdp_dataset_open(bad, &options, &set), FSDP_ERR_FORMAT, "bad.txt: line 2");
    write_file(t, "empty.txt", "", 0, bad);
    CHECK_HERE();
    ASSERT_ERROR(fsdp_dataset_open(bad, &options, &set), FSDP_ERR_FORMAT, "empty.txt: 0 tokens");
    ASSERT_ERROR(fsdp_dataset_open("/nowhere/a.txt", &options, &set), FSDP_ERR_NOT_FOUND,
                 "/nowhere/a.txt");
    ASSERT(set == NULL);
    fsdp_tokenizer_close(tokenizer);
}
