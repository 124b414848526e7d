/* usage: token_models MODEL --check PIECES
 *        token_models MODEL --text FILE [--split words|marks|none] [--threads N] [--seconds S]
 *        token_models train PIECES VOCAB_SIZE MIN_FREQUENCY
 *
 * Measures or checks models of tokenizers without the rest of a tokenizer. MODEL is one of
 *     json FILE              a file with the object "model" of a tokenizer.json
 *     bytes FILE             the same, for a vocabulary in GPT-2's alphabet
 *     bpe VOCAB MERGES       vocab.json and merges.txt in GPT-2's alphabet
 *     tiktoken FILE, wordpiece FILE, sentencepiece FILE
 *
 * train learns a byte-level BPE vocabulary with the special token <s> from PIECES, prints each
 * merge as two ids and the id of its result, and reports the seconds to stderr.
 *
 * --check prints the tokens of each piece as "id:begin:end id:begin:end ...", or "error: STATUS".
 * PIECES has for each piece its number of bytes, as 4 bytes in little-endian order, and its bytes.
 * See tools/check_token_models.py.
 *
 * --text reports MB/s: of the text, for the calls of the model, and for these and the splitting of
 * the text into pieces. Each figure is the best of the rounds within S seconds (2), except the
 * first round, when the cache of words is empty, and the mean per CPU second. The text is divided
 * among N threads. The pieces are: words  runs of letters with the space before them, runs of
 * digits, other characters: similar to what GPT-2's and BERT's patterns find in English texts marks
 * the same text with U+2581 instead of spaces, divided before each of them none   the same text in
 * parts of about 4000 bytes */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/io.h"
#include "src/text/models/bpe.h"
#include "src/text/models/bpe_train.h"
#include "src/text/models/model_json.h"
#include "src/text/models/sentencepiece_model.h"
#include "src/text/models/tiktoken.h"
#include "src/text/models/wordpiece.h"

static void exit_on_failure(fsdp_status status)
{
    if (status == FSDP_OK)
        return;
    fprintf(stderr, "%s\n", fsdp_last_error());
    exit(1);
}

/* ---- models ---- */

static fsdp_status load_json(const char *path, bool raw_bytes, fsdp_token_model **out)
{
    fsdp_json *doc = NULL;
    FSDP_TRY(fsdp_json_read(path, &doc));
    fsdp_status status = fsdp_token_model_from_json(fsdp_json_root(doc), raw_bytes, out);
    fsdp_json_destroy(doc);
    return status;
}

static fsdp_status load_sentencepiece(const char *path, fsdp_token_model **out)
{
    char *bytes = NULL;
    size_t count = 0;
    fsdp_sentencepiece_spec spec = {0};
    FSDP_TRY(fsdp_file_read(path, 1 << 28, &bytes, &count));
    fsdp_status status = fsdp_sentencepiece_parse(path, bytes, count, &spec);
    if (status == FSDP_OK)
        status = fsdp_sentencepiece_model_create(&spec, out);
    fsdp_sentencepiece_spec_fini(&spec);
    fsdp_free(bytes);
    return status;
}

/* Load the model that the arguments name, and return the number of its arguments, 0: usage. */
static int load_model(int argc, char **argv, fsdp_token_model **out)
{
    const char *kind = argc > 2 ? argv[1] : "", *path = argc > 2 ? argv[2] : "";
    const fsdp_wordpiece_options bert = FSDP_WORDPIECE_BERT;
    const fsdp_bpe_options gpt2 = {.raw_bytes = true};
    if (strcmp(kind, "bpe") == 0 && argc > 3) {
        exit_on_failure(fsdp_bpe_load(path, argv[3], &gpt2, out));
        return 3;
    }
    if (strcmp(kind, "json") == 0)
        exit_on_failure(load_json(path, false, out));
    else if (strcmp(kind, "bytes") == 0)
        exit_on_failure(load_json(path, true, out));
    else if (strcmp(kind, "tiktoken") == 0)
        exit_on_failure(fsdp_tiktoken_load(path, out));
    else if (strcmp(kind, "wordpiece") == 0)
        exit_on_failure(fsdp_wordpiece_load(path, &bert, out));
    else if (strcmp(kind, "sentencepiece") == 0)
        exit_on_failure(load_sentencepiece(path, out));
    else
        return 0;
    return 2;
}

/* ---- checking ---- */

static void print_tokens(const fsdp_token_spans *spans)
{
    for (size_t i = 0; i < spans->len; i++)
        printf("%s%d:%u:%u", i ? " " : "", (int)spans->items[i].id, spans->items[i].begin,
               spans->items[i].end);
    printf("\n");
}

/* Print the tokens of a piece, and fail if encode_ids() gives other ids. */
static void check_piece(const fsdp_token_model *model, fsdp_token_work *work, const char *piece,
                        size_t length)
{
    fsdp_token_spans spans = {0};
    fsdp_token_list list = {0};
    fsdp_status status = model->ops->encode(model, work, piece, length, &spans);
    if (status == FSDP_OK)
        print_tokens(&spans);
    else
        printf("error: %s\n", fsdp_status_name(status));
    if (model->ops->encode_ids(model, work, piece, length, &list) != status)
        exit(2);
    bool same = spans.len == list.len;
    for (size_t i = 0; same && i < list.len; i++)
        same = list.ids[i] == spans.items[i].id;
    if (!same) {
        fprintf(stderr, "encode() and encode_ids() differ for '%.*s'\n", (int)length, piece);
        exit(2);
    }
    fsdp_token_spans_fini(&spans);
    fsdp_token_list_fini(&list);
}

/* Calls `each` for every piece of the file. */
typedef void piece_fn(void *arg, const char *piece, size_t length);

static void for_each_piece(const char *path, piece_fn *each, void *arg)
{
    char *data = NULL;
    size_t bytes = 0;
    exit_on_failure(fsdp_file_read(path, SIZE_MAX / 2, &data, &bytes));
    for (size_t i = 0; bytes - i >= 4;) {
        const unsigned char *p = (const unsigned char *)data + i;
        size_t length = p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
        i += 4;
        if (length == 0 || length > bytes - i) {
            fprintf(stderr, "%s: a piece of %zu bytes at offset %zu\n", path, length, i);
            exit(2);
        }
        each(arg, data + i, length);
        i += length;
    }
    fsdp_free(data);
}

typedef struct checking {
    const fsdp_token_model *model;
    fsdp_token_work *work;
} checking;

static void check_each(void *arg, const char *piece, size_t length)
{
    const checking *c = arg;
    check_piece(c->model, c->work, piece, length);
}

static void check_pieces(const fsdp_token_model *model, const char *path)
{
    checking c = {.model = model};
    exit_on_failure(fsdp_token_work_create(&c.work));
    for_each_piece(path, check_each, &c);
    fsdp_token_work_destroy(c.work);
}

/* ---- training ---- */

static void add_each(void *arg, const char *piece, size_t length)
{
    exit_on_failure(fsdp_bpe_trainer_add(arg, piece, length, 1));
}

static int train(const char *path, int64_t vocab_size, int64_t min_frequency)
{
    static const char *const special[] = {"<s>"};
    const fsdp_bpe_train_options options = {vocab_size, min_frequency, special, 1};
    fsdp_bpe_trainer *trainer = NULL;
    fsdp_bpe_learned learned = {0};
    double start = fsdp_clock_s();
    exit_on_failure(fsdp_bpe_trainer_create(&trainer));
    for_each_piece(path, add_each, trainer);
    double counted = fsdp_clock_s();
    exit_on_failure(fsdp_bpe_trainer_learn(trainer, &options, &learned));
    double end = fsdp_clock_s();
    for (size_t i = 0; i < learned.n_merges; i++)
        printf("%d %d %d\n", (int)learned.merges[i].left, (int)learned.merges[i].right,
               (int)learned.merges[i].result);
    fprintf(stderr, "counting %.2f s, learning %.2f s\n", counted - start, end - counted);
    fsdp_bpe_learned_fini(&learned);
    fsdp_bpe_trainer_destroy(trainer);
    return 0;
}

/* ---- pieces of a text ---- */

/* Return the length of the first piece of a text. */
typedef size_t split_fn(const char *text, size_t length);

static int class_of(char c)
{
    unsigned char byte = (unsigned char)c;
    if (byte >= 0x80 || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return 1; /* a letter */
    if (c >= '0' && c <= '9')
        return 2;
    return byte <= ' ' ? 0 : 3;
}

static size_t split_words(const char *text, size_t length)
{
    size_t i = text[0] == ' ' && length > 1 && text[1] != ' ';
    int class = class_of(text[i++]);
    while (i < length && class_of(text[i]) == class)
        i++;
    return i;
}

static size_t split_marks(const char *text, size_t length)
{
    size_t i = 1;
    while (i < length && !(length - i >= 3 && memcmp(text + i, "\xE2\x96\x81", 3) == 0))
        i++;
    return i;
}

static size_t split_none(const char *text, size_t length)
{
    size_t i = length < 4000 ? length : 4000;
    while (i < length && ((unsigned char)text[i] & 0xC0) == 0x80)
        i++;
    return i;
}

/* Replace spaces by U+2581. */
static char *with_marks(const char *text, size_t *bytes)
{
    char *out = fsdp_calloc(3 * *bytes + 4, 1);
    size_t n = 0;
    if (!out)
        exit_on_failure(FSDP_ERR_NOMEM);
    for (size_t i = 0; i < *bytes; i++) {
        if (text[i] == ' ' || text[i] == '\n') {
            memcpy(out + n, "\xE2\x96\x81", 3);
            n += 3;
        } else {
            out[n++] = text[i];
        }
    }
    *bytes = n;
    return out;
}

/* ---- measuring ---- */

typedef struct job {
    pthread_t thread;
    const fsdp_token_model *model; /* NULL: split the text, but do not call a model */
    fsdp_token_work *work;
    split_fn *split;
    const char *text;
    size_t bytes, pieces;
    fsdp_token_list list;
} job;

static void *run_job(void *arg)
{
    job *j = arg;
    j->list.len = 0;
    j->pieces = 0;
    for (size_t i = 0, n; i < j->bytes; i += n) {
        n = j->split(j->text + i, j->bytes - i);
        j->pieces++;
        if (j->model)
            exit_on_failure(j->model->ops->encode_ids(j->model, j->work, j->text + i, n, &j->list));
    }
    return NULL;
}

/* Return the seconds of a round. */
static double run_round(job *jobs, int threads, const fsdp_token_model *model)
{
    double start = fsdp_clock_s();
    for (int i = 0; i < threads; i++)
        jobs[i].model = model;
    for (int i = 1; i < threads; i++)
        if (pthread_create(&jobs[i].thread, NULL, run_job, &jobs[i]) != 0)
            exit(1);
    run_job(&jobs[0]);
    for (int i = 1; i < threads; i++)
        pthread_join(jobs[i].thread, NULL);
    return fsdp_clock_s() - start;
}

static void measure(const fsdp_token_model *model, job *jobs, int threads, double seconds,
                    double megabytes)
{
    double start = fsdp_clock_s(), first = run_round(jobs, threads, model);
    double both = first, splitting = run_round(jobs, threads, NULL), cpu = 0;
    size_t tokens = 0, pieces = 0;
    int rounds = 0;
    for (; rounds == 0 || fsdp_clock_s() - start < seconds; rounds++) {
        double s = run_round(jobs, threads, NULL);
        clock_t before = clock();
        splitting = s < splitting ? s : splitting;
        s = run_round(jobs, threads, model);
        both = s < both ? s : both;
        cpu += (double)(clock() - before) / CLOCKS_PER_SEC;
    }
    for (int i = 0; i < threads; i++) {
        tokens += jobs[i].list.len;
        pieces += jobs[i].pieces;
    }
    printf("%s, %d threads, %.2f MB, %zu pieces, %zu tokens: model %.1f MB/s, with splitting "
           "%.1f MB/s, first round %.1f MB/s, with splitting %.1f MB per CPU second\n",
           model->ops->type, threads, megabytes, pieces, tokens, megabytes / (both - splitting),
           megabytes / both, megabytes / first, megabytes * rounds / cpu);
}

static void measure_text(const fsdp_token_model *model, const char *path, const char *how,
                         int threads, double seconds)
{
    job *jobs = fsdp_calloc((size_t)threads, sizeof *jobs);
    char *text = NULL;
    size_t bytes = 0;
    exit_on_failure(fsdp_file_read(path, SIZE_MAX / 2, &text, &bytes));
    double megabytes = (double)bytes / 1e6;
    if (strcmp(how, "words") != 0) {
        char *marked = with_marks(text, &bytes);
        fsdp_free(text);
        text = marked;
    }
    for (int i = 0; jobs && i < threads; i++) {
        size_t begin = bytes * (size_t)i / (size_t)threads;
        size_t end = bytes * ((size_t)i + 1) / (size_t)threads;
        jobs[i] = (job){.text = text + begin, .bytes = end - begin};
        jobs[i].split = strcmp(how, "words") == 0   ? split_words
                        : strcmp(how, "marks") == 0 ? split_marks
                                                    : split_none;
        exit_on_failure(fsdp_token_work_create(&jobs[i].work));
    }
    if (jobs)
        measure(model, jobs, threads, seconds, megabytes);
    for (int i = 0; jobs && i < threads; i++) {
        fsdp_token_work_destroy(jobs[i].work);
        fsdp_token_list_fini(&jobs[i].list);
    }
    fsdp_free(jobs);
    fsdp_free(text);
}

int main(int argc, char **argv)
{
    const char *text = NULL, *check = NULL, *split = "words";
    int threads = 1;
    double seconds = 2;
    fsdp_token_model *model = NULL;
    if (argc == 5 && strcmp(argv[1], "train") == 0)
        return train(argv[2], atoll(argv[3]), atoll(argv[4]));
    int used = load_model(argc, argv, &model);
    for (int i = used + 1; used && i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--check") == 0)
            check = argv[i + 1];
        else if (strcmp(argv[i], "--text") == 0)
            text = argv[i + 1];
        else if (strcmp(argv[i], "--split") == 0)
            split = argv[i + 1];
        else if (strcmp(argv[i], "--threads") == 0)
            threads = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--seconds") == 0)
            seconds = atof(argv[i + 1]);
    }
    if (!used || (!text && !check) || threads < 1) {
        fprintf(stderr, "usage: see the head of bench/token_models.c\n");
        return 2;
    }
    if (check)
        check_pieces(model, check);
    else
        measure_text(model, text, split, threads, seconds);
    fsdp_token_model_destroy(model);
    return 0;
}
