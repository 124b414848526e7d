/* Runs the steps of a pre-tokenizer. A step divides its text into segments: parts that match the
 * step's pattern, and the parts between them. The step's behavior says which segments are joined or
 * removed. Each part that remains is the text of the next step. */
#include "src/text/parts/pre_tokenizer.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/text/parts/pre_tokenizer_ops.h"

/* The memory of one step for the texts that it makes. */
typedef struct step_texts {
    /* the step's text, after mark() has put the step's mark before the text or replaced its spaces
     * by the mark */
    fsdp_aligned_text marked;
    fsdp_aligned_text spelled; /* a part of the text, spelled in GPT-2's alphabet */
} step_texts;

struct fsdp_pre_tokenizer_work {
    fsdp_regex_work *regex_work;
    step_texts texts[FSDP_TOKEN_PARTS_MAX];
};

typedef struct run {
    const fsdp_pre_tokenizer *pre;
    fsdp_pre_tokenizer_work *work;
    bool tracked, done;
    fsdp_piece_fn *each;
    void *arg;
} run;

/* A part of a step's text that matches the step's pattern, or a part between two matches. */
typedef struct segment {
    size_t begin, end;
    bool is_match;
} segment;

static fsdp_status run_step(run *r, size_t step, const fsdp_text_view *view);

/* ---- finding segments ---- */

typedef struct finder {
    const run *r;
    const fsdp_pre_op *op;
    const fsdp_text_view *view;
    size_t at; /* position in the text at which the last segment ended */
    fsdp_regex_search search;
    bool has_match;
    /* TEXT and REGEX: the next match, which begins at or after `at` */
    size_t match_begin, match_end;
} finder;

/* Find the next segment of a step that splits by character class. Each character of the class is a
 * segment that matches. Each run of other characters is a segment that does not match. */
static void find_class(finder *f, segment *s)
{
    const fsdp_char_classes *classes = f->r->pre->classes;
    const char *text = f->view->data;
    size_t at = f->at, length = 0;
    while (at < f->view->len &&
           !(fsdp_char_class(classes, fsdp_utf8_decode(text + at, &length)) & f->op->flags))
        at += length;
    s->is_match = at == f->at;
    s->end = s->is_match ? at + length : at;
}

static bool is_run_kind(const fsdp_char_classes *classes, uint32_t c, unsigned *kind)
{
    const unsigned flags = fsdp_char_class(classes, c);
    const unsigned is = flags & FSDP_CHAR_WORD ? 1 : flags & FSDP_CHAR_WHITE ? 2 : 3;
    const bool same = !*kind || *kind == is;
    *kind = *kind ? *kind : is;
    return same;
}

/* Find the next segment of the pre-tokenizer Whitespace. The segments are runs of word characters,
 * runs of white space and runs of other characters. Only white space matches, and the step's
 * behavior removes matches. */
static void find_run(finder *f, segment *s)
{
    unsigned kind = 0;
    size_t at = f->at, length;
    while (at < f->view->len &&
           is_run_kind(f->r->pre->classes, fsdp_utf8_decode(f->view->data + at, &length), &kind))
        at += length;
    s->is_match = kind == 2;
    s->end = at;
}

static void find_length(finder *f, segment *s)
{
    size_t at = f->at;
    for (int64_t n = 0; n < f->op->length && at < f->view->len; n++)
        at += fsdp_utf8_length(f->view->data[at]);
    s->is_match = true;
    s->end = at;
}

/* Find the next segment of the pre-tokenizer UnicodeScripts. A segment ends before a character
 * whose script differs from that of the segment's first character. Spaces and characters that are
 * not assigned have no script, and never end a segment. If a text begins with such characters, they
 * match, and the step's behavior removes matches, as the tokenizers library does. */
static void find_script(finder *f, segment *s)
{
    size_t at = f->at, length = 0;
    const char *text = f->view->data;
    const uint8_t script = fsdp_char_script(fsdp_utf8_decode(text + at, &length));
    for (at += length; at < f->view->len; at += length) {
        const uint8_t next = fsdp_char_script(fsdp_utf8_decode(text + at, &length));
        if (next != FSDP_SCRIPT_ANY && next != script)
            break;
    }
    s->is_match = script == FSDP_SCRIPT_ANY;
    s->end = at;
}

static fsdp_status find_match(finder *f)
{
    if (f->op->by == FSDP_SPLIT_REGEX)
        return fsdp_regex_next(&f->search, &f->has_match, &f->match_begin, &f->match_end);
    const char *text = f->view->data;
    const size_t n = strlen(f->op->text);
    const char *at = memmem(text + f->at, f->view->len - f->at, f->op->text, n);
    f->has_match = at != NULL;
    f->match_begin = at ? (size_t)(at - text) : f->view->len;
    f->match_end = f->match_begin + n;
    return FSDP_OK;
}

/* Find the next segment of a step that splits by a regular expression or a text. It is a match,
 * which may be empty, or the text before the next match. Set *found to false at the end of the
 * text. */
static fsdp_status find_pattern(finder *f, segment *s, bool *found)
{
    if (!f->has_match)
        FSDP_TRY(find_match(f));
    if (!f->has_match || f->match_begin > f->at) {
        s->is_match = false;
        s->end = f->has_match ? f->match_begin : f->view->len;
        *found = s->end > s->begin;
        return FSDP_OK;
    }
    s->is_match = *found = true;
    s->end = f->match_end > f->at ? f->match_end : f->at;
    f->has_match = false;
    return FSDP_OK;
}

static fsdp_status next_segment(finder *f, segment *s, bool *found)
{
    s->begin = s->end = f->at;
    *found = f->at < f->view->len;
    /* A pattern may match the empty text at the end. All other segments have a character. */
    const bool is_pattern = f->op->by == FSDP_SPLIT_TEXT || f->op->by == FSDP_SPLIT_REGEX;
    if (!*found && !is_pattern)
        return FSDP_OK;
    switch (f->op->by) {
    case FSDP_SPLIT_TEXT:
    case FSDP_SPLIT_REGEX:
        FSDP_TRY(find_pattern(f, s, found));
        break;
    case FSDP_SPLIT_NOTHING:
        s->is_match = true;
        s->end = f->view->len;
        break;
    case FSDP_SPLIT_CLASS:
        find_class(f, s);
        break;
    case FSDP_SPLIT_RUNS:
        find_run(f, s);
        break;
    case FSDP_SPLIT_LENGTH:
        find_length(f, s);
        break;
    case FSDP_SPLIT_SCRIPTS:
        find_script(f, s);
        break;
    case FSDP_SPLIT_WORDS:
        s->is_match = true;
        s->end =
            fsdp_word_end(f->op->words, f->r->pre->classes, f->view->data, f->at, f->view->len);
        break;
    }
    f->at = s->end;
    if (f->op->invert)
        s->is_match = !s->is_match;
    return FSDP_OK;
}

/* ---- passing parts to the next step ---- */

static fsdp_status spell(run *r, size_t step, fsdp_text_view *part)
{
    fsdp_aligned_text *out = &r->work->texts[step].spelled;
    FSDP_TRY(fsdp_transform_spell(part, r->tracked, out));
    *part = fsdp_aligned_text_view(out);
    return FSDP_OK;
}

static fsdp_status emit(run *r, size_t step, const fsdp_text_view *view, size_t begin, size_t end)
{
    if (begin >= end || r->done)
        return FSDP_OK;
    fsdp_text_view part = fsdp_view_slice(view, begin, end);
    if (r->pre->ops[step].spells)
        FSDP_TRY(spell(r, step, &part));
    return run_step(r, step + 1, &part);
}

/* Return true if `behavior` says that the segment `next` is joined to `last`, the segment before
 * it. */
static bool joins(fsdp_split_behavior behavior, const segment *last, const segment *next)
{
    switch (behavior) {
    case FSDP_SPLIT_CONTIGUOUS:
        return last->is_match == next->is_match;
    case FSDP_SPLIT_MERGED_WITH_PREVIOUS:
        return next->is_match && !last->is_match;
    case FSDP_SPLIT_MERGED_WITH_NEXT:
        return last->is_match && !next->is_match;
    default:
        return false;
    }
}

static fsdp_status split_merged(run *r, size_t step, finder *f)
{
    const fsdp_split_behavior behavior = r->pre->ops[step].behavior;
    segment last = {0}, next;
    bool found, has_last = false;
    FSDP_TRY(next_segment(f, &next, &found));
    while (found && !r->done) {
        if (has_last && joins(behavior, &last, &next)) {
            last.end = next.end;
            last.is_match = next.is_match;
        } else {
            if (has_last)
                FSDP_TRY(emit(r, step, f->view, last.begin, last.end));
            last = next;
            has_last = true;
        }
        FSDP_TRY(next_segment(f, &next, &found));
    }
    return has_last ? emit(r, step, f->view, last.begin, last.end) : FSDP_OK;
}

static fsdp_status split(run *r, size_t step, const fsdp_text_view *view)
{
    const fsdp_pre_op *op = &r->pre->ops[step];
    finder f = {.r = r, .op = op, .view = view};
    if (op->by == FSDP_SPLIT_REGEX)
        f.search = (fsdp_regex_search){.regex = op->regex,
                                       .work = r->work->regex_work,
                                       .text = view->data,
                                       .length = view->len};
    if (op->behavior != FSDP_SPLIT_REMOVED && op->behavior != FSDP_SPLIT_ISOLATED)
        return split_merged(r, step, &f);
    segment s;
    bool found;
    FSDP_TRY(next_segment(&f, &s, &found));
    while (found && !r->done) {
        if (!s.is_match || op->behavior == FSDP_SPLIT_ISOLATED)
            FSDP_TRY(emit(r, step, view, s.begin, s.end));
        FSDP_TRY(next_segment(&f, &s, &found));
    }
    return FSDP_OK;
}

/* ---- marks ---- */

/* Return true if the text begins with the step's mark, or will begin with it after spaces have been
 * replaced by the mark. */
static bool begins_with_mark(const fsdp_pre_op *op, const fsdp_text_view *view)
{
    const size_t n = strlen(op->mark);
    return (op->replaces_spaces && view->len && *view->data == ' ') ||
           (view->len >= n && memcmp(view->data, op->mark, n) == 0);
}

static bool prepends(const fsdp_pre_op *op, const fsdp_text_view *view)
{
    if (op->scheme == FSDP_PREPEND_NEVER || !view->len || begins_with_mark(op, view))
        return false;
    return op->scheme == FSDP_PREPEND_ALWAYS || fsdp_view_begin(view) == 0;
}

static void replace_spaces(const fsdp_pre_op *op, const fsdp_text_view *view, bool tracked,
                           fsdp_aligned_text *out)
{
    const size_t n = strlen(op->mark);
    size_t done = 0;
    const char *space;
    while ((space = memchr(view->data + done, ' ', view->len - done))) {
        const size_t at = (size_t)(space - view->data);
        fsdp_aligned_text_copy(out, view, done, at);
        fsdp_aligned_text_append(out, op->mark, n,
                                 tracked ? fsdp_view_align(view, at) : (fsdp_align){0, 0});
        done = at + 1;
    }
    fsdp_aligned_text_copy(out, view, done, view->len);
}

static fsdp_status mark(run *r, size_t step, fsdp_text_view *view)
{
    const fsdp_pre_op *op = &r->pre->ops[step];
    const bool prepend = prepends(op, view);
    const bool replace = op->replaces_spaces && memchr(view->data, ' ', view->len);
    if (!prepend && !replace)
        return FSDP_OK;
    fsdp_aligned_text *out = &r->work->texts[step].marked;
    fsdp_aligned_text_clear(out, r->tracked);
    if (prepend)
        fsdp_aligned_text_append(out, op->mark, strlen(op->mark),
                                 r->tracked ? fsdp_view_align(view, 0) : (fsdp_align){0, 0});
    if (replace)
        replace_spaces(op, view, r->tracked, out);
    else
        fsdp_aligned_text_copy(out, view, 0, view->len);
    if (out->failed)
        return fsdp_error_nomem();
    *view = fsdp_aligned_text_view(out);
    return FSDP_OK;
}

/* ---- splitting at white space and marking each word, in one pass ---- */

/* Find the next word that begins at or after *end, and set [*begin, *end) to it. Set *has_mark to
 * true if the word contains the character `mark`. Return false if there is no further word. */
static bool next_word(const fsdp_char_classes *classes, const fsdp_text_view *view, uint32_t mark,
                      size_t *begin, size_t *end, bool *has_mark)
{
    size_t at = *end, length;
    while (at < view->len &&
           fsdp_char_class(classes, fsdp_utf8_decode(view->data + at, &length)) & FSDP_CHAR_WHITE)
        at += length;
    *begin = at;
    *has_mark = false;
    for (; at < view->len; at += length) {
        const uint32_t c = fsdp_utf8_decode(view->data + at, &length);
        if (fsdp_char_class(classes, c) & FSDP_CHAR_WHITE)
            break;
        *has_mark |= c == mark;
    }
    *end = at;
    return at > *begin;
}

/* Do the steps `step` and `step` + 1 in one pass (fsdp_pre_op.marks_words): split at white space,
 * and put the mark before each word. Alignments are not kept. A word that contains the mark itself
 * is passed to step `step` + 1 in the usual way. */
static fsdp_status mark_words(run *r, size_t step, const fsdp_text_view *view)
{
    const char *mark = r->pre->ops[step + 1].mark;
    const size_t n = strlen(mark);
    size_t begin, end = 0, length;
    const uint32_t c = fsdp_utf8_decode(mark, &length);
    bool has_mark;
    fsdp_aligned_text *out = &r->work->texts[step].marked;
    fsdp_aligned_text_clear(out, false);
    fsdp_aligned_text_append(out, mark, n, (fsdp_align){0, 0});
    while (!r->done && next_word(r->pre->classes, view, c, &begin, &end, &has_mark)) {
        if (has_mark) {
            FSDP_TRY(emit(r, step, view, begin, end));
            continue;
        }
        out->len = n;
        fsdp_aligned_text_copy(out, view, begin, end);
        if (out->failed)
            return fsdp_error_nomem();
        const fsdp_text_view piece = fsdp_aligned_text_view(out);
        FSDP_TRY(run_step(r, step + 2, &piece));
    }
    return FSDP_OK;
}

/* ---- all steps ---- */

static fsdp_status run_step(run *r, size_t step, const fsdp_text_view *view)
{
    if (step == r->pre->n)
        return r->each(r->arg, view, &r->done);
    fsdp_text_view marked = *view;
    if (*r->pre->ops[step].mark)
        FSDP_TRY(mark(r, step, &marked));
    if (r->pre->ops[step].marks_words && !r->tracked)
        return mark_words(r, step, &marked);
    return split(r, step, &marked);
}

fsdp_status fsdp_pre_tokenizer_split(const fsdp_pre_tokenizer *pre, fsdp_pre_tokenizer_work *work,
                                     const fsdp_text_view *text, bool tracked, fsdp_piece_fn *each,
                                     void *arg)
{
    bool done = false;
    if (!text->len)
        return FSDP_OK;
    if (!pre)
        return each(arg, text, &done);
    run r = {.pre = pre, .work = work, .tracked = tracked, .each = each, .arg = arg};
    return run_step(&r, 0, text);
}

fsdp_status fsdp_pre_tokenizer_work_create(fsdp_pre_tokenizer_work **out)
{
    fsdp_pre_tokenizer_work *work = fsdp_calloc(1, sizeof *work);
    if (!work)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_regex_work_create(&work->regex_work);
    if (status != FSDP_OK) {
        fsdp_pre_tokenizer_work_destroy(work);
        return status;
    }
    *out = work;
    return FSDP_OK;
}

void fsdp_pre_tokenizer_work_destroy(fsdp_pre_tokenizer_work *work)
{
    if (!work)
        return;
    for (size_t i = 0; i < FSDP_TOKEN_PARTS_MAX; i++) {
        fsdp_aligned_text_fini(&work->texts[i].marked);
        fsdp_aligned_text_fini(&work->texts[i].spelled);
    }
    fsdp_regex_work_destroy(work->regex_work);
    fsdp_free(work);
}
