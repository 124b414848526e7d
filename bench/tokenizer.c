/* Encodes and decodes texts with a tokenizer.
 *
 *     tokenizer check PATH             for tools/check_tokenizers.py
 *     tokenizer speed PATH FILE [N]    megabytes per second of processor time on the lines of a
 * text file, on documents of about 4000 bytes, and on the whole file, with N threads
 *
 * `check` reads requests from the standard input: a line "length pair_length max_length truncation
 * flags" (pair_length -1: no pair; truncation as fsdp_truncation; flags: 1 no special tokens, 2
 * truncate left, 4 offsets in bytes), then the bytes of the texts. For each it prints a line of
 * ids, offsets, type ids, and two decoded texts in hexadecimal (all, and without special tokens),
 * or "error" and a message. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <fsdp/text.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, fsdp_last_error());
    return 1;
}

/* ---- check ---- */

static void print_hex(const fsdp_tokenizer *tokenizer, const fsdp_encoding *e, unsigned flags)
{
    char *text;
    if (fsdp_tokenizer_decode(tokenizer, e->ids.ids, e->ids.len, flags, &text) != FSDP_OK) {
        printf("! ");
        return;
    }
    for (const char *p = text; *p; p++)
        printf("%02x", (unsigned)(unsigned char)*p);
    printf(". ");
    fsdp_text_free(text);
}

static void print_encoding(const fsdp_tokenizer *tokenizer, const fsdp_encoding *e)
{
    printf("%zu ", e->ids.len);
    for (size_t i = 0; i < e->ids.len; i++)
        printf("%d,%u,%u,%d ", (int)e->ids.ids[i], e->offsets[i].begin, e->offsets[i].end,
               (int)e->type_ids[i]);
    print_hex(tokenizer, e, FSDP_DECODE_SKIP_UNKNOWN);
    print_hex(tokenizer, e, FSDP_DECODE_SKIP_UNKNOWN | FSDP_DECODE_SKIP_SPECIAL);
    printf("\n");
}

/* Ids alone take another way through the code; the result must be the same. */
static int check_ids(const fsdp_tokenizer *tokenizer, const char *text, size_t length,
                     const fsdp_encode_options *o, const fsdp_encoding *e)
{
    fsdp_token_list list = {0};
    fsdp_status status =
        o->no_special_tokens
            ? fsdp_tokenizer_encode_text(tokenizer, text, length, o->max_length, &list)
            : fsdp_tokenizer_encode(tokenizer, text, length, o->max_length, &list);
    const int same = status == FSDP_OK && list.len == e->ids.len &&
                     (!list.len || memcmp(list.ids, e->ids.ids, list.len * sizeof *list.ids) == 0);
    fsdp_token_list_fini(&list);
    return same;
}

static int check(const fsdp_tokenizer *tokenizer)
{
    long length, pair_length;
    int max_length, truncation, flags;
    fsdp_encoding e = {0};
    while (scanf("%ld %ld %d %d %d", &length, &pair_length, &max_length, &truncation, &flags) ==
           5) {
        const size_t total = (size_t)length + (size_t)(pair_length > 0 ? pair_length : 0);
        char *text = malloc(total + 1);
        if (!text || getchar() != '\n' || fread(text, 1, total, stdin) != total)
            return 1;
        const fsdp_encode_options o = {.no_special_tokens = flags & 1,
                                       .truncate_left = (flags & 2) != 0,
                                       .max_length = max_length,
                                       .truncation = (fsdp_truncation)truncation,
                                       .offsets = flags & 4 ? FSDP_OFFSETS_BYTES
                                                            : FSDP_OFFSETS_CHARACTERS};
        const char *pair = pair_length >= 0 ? text + length : NULL;
        if (fsdp_tokenizer_encode_pair(tokenizer, text, (size_t)length, pair,
                                       (size_t)(pair_length > 0 ? pair_length : 0), &o,
                                       &e) != FSDP_OK)
            printf("error %s\n", fsdp_last_error());
        else if (!pair && !o.truncate_left && !check_ids(tokenizer, text, (size_t)length, &o, &e))
            printf("error the ids differ without offsets\n");
        else
            print_encoding(tokenizer, &e);
        free(text);
        fflush(stdout);
    }
    fsdp_encoding_fini(&e);
    return 0;
}

/* ---- speed ---- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct job {
    const fsdp_tokenizer *tokenizer;
    const char *text;
    size_t bytes, ids;
    size_t part; /* bytes of a part, which ends with a line; 0: the whole text */
} job;

static void *encode_job(void *arg)
{
    job *j = arg;
    fsdp_token_list list = {0};
    for (size_t at = 0; at < j->bytes;) {
        const size_t left = j->bytes - at;
        const char *from = j->text + at + (j->part < left ? j->part : left) - (j->part > 0);
        const char *end = j->part ? memchr(from, '\n', j->bytes - (size_t)(from - j->text)) : NULL;
        const size_t n = end ? (size_t)(end - j->text) + 1 - at : j->bytes - at;
        list.len = 0;
        if (fsdp_tokenizer_encode_text(j->tokenizer, j->text + at, n, 0, &list) != FSDP_OK)
            exit(fail("encode"));
        j->ids += list.len;
        at += n;
    }
    fsdp_token_list_fini(&list);
    return NULL;
}

static void measure(const fsdp_tokenizer *tokenizer, const char *text, size_t bytes, int threads,
                    const char *what, size_t part)
{
    enum {
        MOST = 64
    };
    job jobs[MOST];
    pthread_t ids[MOST];
    size_t at = 0, total = 0;
    const double begin = seconds();
    for (int i = 0; i < threads; i++) {
        size_t end = i + 1 == threads ? bytes : bytes / (size_t)threads * (size_t)(i + 1);
        while (end < bytes && text[end - 1] != '\n')
            end++;
        jobs[i] = (job){tokenizer, text + at, end - at, 0, part};
        at = end;
        if (pthread_create(&ids[i], NULL, encode_job, &jobs[i]) != 0)
            exit(1);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        total += jobs[i].ids;
    }
    const double took = seconds() - begin;
    printf("%s, %d threads: %.1f MB/s, %zu ids\n", what, threads, (double)bytes / 1e6 / took,
           total);
}

static int speed(const fsdp_tokenizer *tokenizer, const char *path, int threads)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        return 1;
    const size_t bytes = (size_t)ftell(file);
    char *text = malloc(bytes + 1);
    rewind(file);
    if (!text || fread(text, 1, bytes, file) != bytes)
        return 1;
    fclose(file);
    for (int i = 0; i < 3; i++) {
        measure(tokenizer, text, bytes, threads, "lines", 1);
        measure(tokenizer, text, bytes, threads, "documents", 4000);
        measure(tokenizer, text, bytes, threads, "whole", 0);
    }
    free(text);
    return 0;
}

int main(int argc, char **argv)
{
    fsdp_tokenizer *tokenizer;
    if (argc < 3)
        return 2;
    const double begin = seconds();
    if (fsdp_tokenizer_open(argv[2], &tokenizer) != FSDP_OK)
        return fail("open");
    fprintf(stderr, "opened in %.3f s\n", seconds() - begin);
    const int result = strcmp(argv[1], "check") == 0 ? check(tokenizer)
                       : argc > 3 ? speed(tokenizer, argv[3], argc > 4 ? atoi(argv[4]) : 1)
                                  : 2;
    fsdp_tokenizer_close(tokenizer);
    return result;
}
