/* A normalizer is a list of steps. The parts of a Sequence become steps of the same list, even if a
 * Sequence contains another one. A BertNormalizer becomes several steps.
 *
 * If alignments are not wanted, there is a shortcut for runs of ASCII characters. It is used if, in
 * each step, the result for an ASCII character does not depend on the characters next to it. (This
 * is so for NFD and NFKD, but not for NFC and NFKC.) The result for each ASCII character is then
 * computed once, and stored in a table that converts whole runs. */
#include "src/text/parts/normalizer.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/text/chars/unicode.h"
#include "src/text/parts/normalizer_ops.h"
#include "src/text/parts/token_json.h"

enum {
    REMOVED = 0xFF /* value in the table `ascii` for a character that the steps remove */
};

struct fsdp_normalizer {
    const fsdp_char_classes *classes;
    fsdp_normalize_op ops[FSDP_TOKEN_PARTS_MAX];
    size_t n;
    bool has_shortcut;
    /* the table of the shortcut: what the steps make of each ASCII character; set only if
     * has_shortcut */
    uint8_t ascii[128];
};

struct fsdp_normalizer_work {
    fsdp_normalize_work forms;
    /* the texts that steps write; consecutive steps use them alternately */
    fsdp_aligned_text texts[2];
    fsdp_aligned_text joined; /* the text that the shortcut for ASCII writes */
};

/* ---- from JSON ---- */

static fsdp_status add_op(fsdp_normalizer *normalizer, fsdp_json_node node,
                          fsdp_normalize_type type, uint16_t flags, fsdp_normalize_op **op)
{
    if (normalizer->n == FSDP_TOKEN_PARTS_MAX)
        return fsdp_json_mismatch(node, NULL, "a normalizer of at most %d steps",
                                  (int)FSDP_TOKEN_PARTS_MAX);
    fsdp_normalize_op *next = &normalizer->ops[normalizer->n++];
    *next = (fsdp_normalize_op){.type = type, .flags = flags};
    if (op)
        *op = next;
    return FSDP_OK;
}

static fsdp_status add_form(fsdp_normalizer *normalizer, fsdp_json_node node,
                            fsdp_normalize_type type)
{
    const char *name;
    FSDP_TRY(fsdp_json_get_str(node, "type", &name));
    FSDP_TRY(fsdp_unicode_check(name));
    return add_op(normalizer, node, type, 0, NULL);
}

static fsdp_status add_bert(fsdp_normalizer *normalizer, fsdp_json_node node)
{
    bool clean, chinese, accents, lower;
    FSDP_TRY(
        fsdp_token_json_fields(node, "clean_text handle_chinese_chars strip_accents lowercase"));
    FSDP_TRY(fsdp_json_get_bool(node, "clean_text", &clean));
    FSDP_TRY(fsdp_json_get_bool(node, "handle_chinese_chars", &chinese));
    FSDP_TRY(fsdp_json_get_bool(node, "lowercase", &lower));
    FSDP_TRY(fsdp_json_opt_bool(node, "strip_accents", lower, &accents));
    if (clean) {
        FSDP_TRY(add_op(normalizer, node, FSDP_NORMALIZE_REMOVE, FSDP_CHAR_CONTROL, NULL));
        FSDP_TRY(add_op(normalizer, node, FSDP_NORMALIZE_CLEAN, 0, NULL));
    }
    if (chinese)
        FSDP_TRY(add_op(normalizer, node, FSDP_NORMALIZE_CHINESE, 0, NULL));
    if (accents) {
        FSDP_TRY(add_form(normalizer, node, FSDP_NORMALIZE_NFD));
        FSDP_TRY(add_op(normalizer, node, FSDP_NORMALIZE_REMOVE, FSDP_CHAR_ACCENT, NULL));
    }
    return lower ? add_op(normalizer, node, FSDP_NORMALIZE_LOWERCASE, 0, NULL) : FSDP_OK;
}

static fsdp_status add_strip(fsdp_normalizer *normalizer, fsdp_json_node node)
{
    fsdp_normalize_op *op = NULL;
    FSDP_TRY(fsdp_token_json_fields(node, "strip_left strip_right"));
    FSDP_TRY(add_op(normalizer, node, FSDP_NORMALIZE_STRIP, 0, &op));
    FSDP_TRY(fsdp_json_get_bool(node, "strip_left", &op->strip_left));
    return fsdp_json_get_bool(node, "strip_right", &op->strip_right);
}

static fsdp_status add_content(fsdp_normalize_op *op, fsdp_json_node node, const char *key)
{
    const char *content;
    FSDP_TRY(fsdp_json_get_str(node, key, &content));
    op->content = fsdp_strdup(content);
    return op->content ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status add_replace(fsdp_normalizer *normalizer, fsdp_json_node node)
{
    fsdp_normalize_op *op = NULL;
    const char *pattern;
    bool is_regex;
    FSDP_TRY(fsdp_token_json_fields(node, "pattern content"));
    FSDP_TRY(add_op(normalizer, node, FSDP_NORMALIZE_REPLACE, 0, &op));
    FSDP_TRY(add_content(op, node, "content"));
    FSDP_TRY(fsdp_token_json_pattern(node, "pattern", &pattern, &is_regex));
    if (is_regex || !*pattern)
        return fsdp_regex_compile(pattern, &op->regex);
    op->pattern = fsdp_strdup(pattern);
    return op->pattern ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status add_prepend(fsdp_normalizer *normalizer, fsdp_json_node node)
{
    fsdp_normalize_op *op = NULL;
    FSDP_TRY(fsdp_token_json_fields(node, "prepend"));
    FSDP_TRY(add_op(normalizer, node, FSDP_NORMALIZE_PREPEND, 0, &op));
    return add_content(op, node, "prepend");
}

static fsdp_status add_precompiled(fsdp_normalizer *normalizer, fsdp_json_node node)
{
    fsdp_normalize_op *op = NULL;
    const char *base64;
    FSDP_TRY(fsdp_token_json_fields(node, "precompiled_charsmap"));
    FSDP_TRY(fsdp_unicode_check("Precompiled"));
    /* If a model has no charsmap, the tokenizers library writes null here, although it cannot read
     * null. */
    FSDP_TRY(fsdp_json_opt_str(node, "precompiled_charsmap", NULL, &base64));
    if (!base64 || !*base64)
        return FSDP_OK;
    FSDP_TRY(add_op(normalizer, node, FSDP_NORMALIZE_PRECOMPILED, 0, &op));
    FSDP_TRY(fsdp_charsmap_decode(base64, &op->map));
    for (int c = 0; c < 128; c++) {
        size_t length;
        op->plain[c] = c != '\r' && !fsdp_charsmap_find(op->map, &(char){(char)c}, 1, &length);
    }
    return FSDP_OK;
}

static fsdp_status add_nmt(fsdp_normalizer *normalizer, fsdp_json_node node)
{
    FSDP_TRY(add_op(normalizer, node, FSDP_NORMALIZE_NMT_REMOVE, 0, NULL));
    return add_op(normalizer, node, FSDP_NORMALIZE_NMT_SPACE, 0, NULL);
}

/* Add the steps of a normalizer whose JSON object has no fields except "type". Set *known to false
 * if there is no normalizer of this type. */
static fsdp_status add_simple(fsdp_normalizer *normalizer, fsdp_json_node node, const char *type,
                              bool *known)
{
    static const struct {
        const char *type;
        fsdp_normalize_type op;
        uint16_t flags;
    } simple[] = {
        {"Lowercase", FSDP_NORMALIZE_LOWERCASE, 0},
        {"StripAccents", FSDP_NORMALIZE_REMOVE, FSDP_CHAR_COMBINING},
        {"ByteLevel", FSDP_NORMALIZE_BYTE_LEVEL, 0},
        {"NFC", FSDP_NORMALIZE_NFC, 0},
        {"NFD", FSDP_NORMALIZE_NFD, 0},
        {"NFKC", FSDP_NORMALIZE_NFKC, 0},
        {"NFKD", FSDP_NORMALIZE_NFKD, 0},
        {"Nmt", FSDP_NORMALIZE_NMT_REMOVE, 0},
    };
    *known = false;
    for (size_t i = 0; i < sizeof simple / sizeof *simple; i++) {
        if (strcmp(simple[i].type, type) != 0)
            continue;
        *known = true;
        FSDP_TRY(fsdp_token_json_fields(node, ""));
        if (simple[i].op == FSDP_NORMALIZE_NMT_REMOVE)
            return add_nmt(normalizer, node);
        return *type == 'N' ? add_form(normalizer, node, simple[i].op)
                            : add_op(normalizer, node, simple[i].op, simple[i].flags, NULL);
    }
    return FSDP_OK;
}

static fsdp_status add_part(fsdp_normalizer *normalizer, fsdp_json_node node, int depth);

static fsdp_status add_sequence(fsdp_normalizer *normalizer, fsdp_json_node node, int depth)
{
    fsdp_json_node parts;
    FSDP_TRY(fsdp_token_json_fields(node, "normalizers"));
    FSDP_TRY(fsdp_json_get_array(node, "normalizers", &parts));
    if (depth == FSDP_TOKEN_DEPTH_MAX)
        return fsdp_json_mismatch(node, "normalizers", "Sequences that are nested less deeply");
    for (size_t i = 0; i < fsdp_json_len(parts); i++) {
        fsdp_status status = add_part(normalizer, fsdp_json_at(parts, i), depth + 1);
        if (status != FSDP_OK)
            return status;
    }
    return FSDP_OK;
}

static fsdp_status add_part(fsdp_normalizer *normalizer, fsdp_json_node node, int depth)
{
    static const struct {
        const char *type;
        fsdp_status (*add)(fsdp_normalizer *normalizer, fsdp_json_node node);
    } kinds[] = {{"BertNormalizer", add_bert},
                 {"Strip", add_strip},
                 {"Replace", add_replace},
                 {"Prepend", add_prepend},
                 {"Precompiled", add_precompiled}};
    const char *type;
    bool known;
    FSDP_TRY(fsdp_token_json_type(node, &type));
    if (strcmp(type, "Sequence") == 0)
        return add_sequence(normalizer, node, depth);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].type, type) == 0)
            return kinds[i].add(normalizer, node);
    FSDP_TRY(add_simple(normalizer, node, type, &known));
    return known ? FSDP_OK
                 : fsdp_token_json_unknown(
                       node, "normalizer",
                       "BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, "
                       "Precompiled, Prepend, Replace, Sequence, Strip, StripAccents");
}

/* ---- the shortcut for ASCII ---- */

static bool is_by_character(const fsdp_normalize_op *op)
{
    switch (op->type) {
    case FSDP_NORMALIZE_NFD:
    case FSDP_NORMALIZE_NFKD:
    case FSDP_NORMALIZE_LOWERCASE:
    case FSDP_NORMALIZE_REMOVE:
    case FSDP_NORMALIZE_CLEAN:
    case FSDP_NORMALIZE_CHINESE:
    case FSDP_NORMALIZE_NMT_REMOVE:
    case FSDP_NORMALIZE_NMT_SPACE:
        return true;
    default:
        return false;
    }
}

static fsdp_status apply_steps(const fsdp_normalizer *normalizer, fsdp_normalizer_work *work,
                               const fsdp_text_view *in, bool tracked, fsdp_text_view *out)
{
    fsdp_text_view view = *in;
    for (size_t i = 0, next = 0; i < normalizer->n; i++) {
        bool changed;
        FSDP_TRY(fsdp_normalize_step(&normalizer->ops[i], normalizer->classes, &work->forms, &view,
                                     tracked, &work->texts[next], &changed));
        if (!changed)
            continue;
        view = fsdp_aligned_text_view(&work->texts[next]);
        next = !next;
    }
    *out = view;
    return FSDP_OK;
}

static fsdp_status prepare_shortcut(fsdp_normalizer *normalizer, fsdp_normalizer_work *work)
{
    for (size_t i = 0; i < normalizer->n; i++)
        if (!is_by_character(&normalizer->ops[i]))
            return FSDP_OK;
    for (int c = 0; c < 128; c++) {
        const char byte = (char)c;
        fsdp_text_view view = {.data = &byte, .len = 1};
        FSDP_TRY(apply_steps(normalizer, work, &view, false, &view));
        if (view.len > 1 || (view.len && (unsigned char)*view.data >= 128))
            return FSDP_OK;
        normalizer->ascii[c] = view.len ? (uint8_t)*view.data : REMOVED;
    }
    normalizer->has_shortcut = true;
    return FSDP_OK;
}

static void append_ascii(const fsdp_normalizer *normalizer, const char *text, size_t n,
                         fsdp_aligned_text *out)
{
    char bytes[512];
    for (size_t done = 0; done < n;) {
        const size_t most = n - done < sizeof bytes ? n - done : sizeof bytes;
        size_t kept = 0;
        for (size_t i = 0; i < most; i++) {
            const uint8_t c = normalizer->ascii[(unsigned char)text[done + i]];
            bytes[kept] = (char)c;
            kept += c != REMOVED;
        }
        fsdp_aligned_text_append(out, bytes, kept, (fsdp_align){0, 0});
        done += most;
    }
}

/* Return the number of bytes at the beginning of `text` that are not ASCII. */
static size_t other_length(const char *text, size_t left)
{
    size_t i = 0;
    while (i < left && (unsigned char)text[i] >= 0x80)
        i++;
    return i;
}

static fsdp_status apply_shortcut(const fsdp_normalizer *normalizer, fsdp_normalizer_work *work,
                                  const fsdp_text_view *in, fsdp_text_view *out)
{
    fsdp_aligned_text *joined = &work->joined;
    fsdp_aligned_text_clear(joined, false);
    for (size_t i = 0, n; i < in->len; i += n) {
        n = fsdp_ascii_length(in->data + i, in->len - i);
        append_ascii(normalizer, in->data + i, n, joined);
        if (n)
            continue;
        n = other_length(in->data + i, in->len - i);
        fsdp_text_view part = fsdp_view_slice(in, i, i + n);
        FSDP_TRY(apply_steps(normalizer, work, &part, false, &part));
        fsdp_aligned_text_copy(joined, &part, 0, part.len);
    }
    *out = fsdp_aligned_text_view(joined);
    return joined->failed ? fsdp_error_nomem() : FSDP_OK;
}

/* ---- creating, applying ---- */

static fsdp_status finish(fsdp_normalizer *normalizer)
{
    fsdp_normalizer_work *work;
    FSDP_TRY(fsdp_normalizer_work_create(&work));
    fsdp_status status = prepare_shortcut(normalizer, work);
    fsdp_normalizer_work_destroy(work);
    return status;
}

fsdp_status fsdp_normalizer_from_json(fsdp_json_node node, const fsdp_char_classes *classes,
                                      fsdp_normalizer **out)
{
    const fsdp_json_kind kind = fsdp_json_kind_of(node);
    if (kind == FSDP_JSON_NONE || kind == FSDP_JSON_NULL) {
        *out = NULL;
        return FSDP_OK;
    }
    fsdp_normalizer *normalizer = fsdp_calloc(1, sizeof *normalizer);
    if (!normalizer)
        return FSDP_ERR_NOMEM;
    normalizer->classes = classes;
    fsdp_status status = add_part(normalizer, node, 0);
    if (status == FSDP_OK)
        status = finish(normalizer);
    if (status != FSDP_OK) {
        fsdp_normalizer_destroy(normalizer);
        return status;
    }
    *out = normalizer;
    return FSDP_OK;
}

void fsdp_normalizer_destroy(fsdp_normalizer *normalizer)
{
    if (!normalizer)
        return;
    for (size_t i = 0; i < normalizer->n; i++) {
        fsdp_free(normalizer->ops[i].pattern);
        fsdp_free(normalizer->ops[i].content);
        fsdp_regex_destroy(normalizer->ops[i].regex);
        fsdp_charsmap_destroy(normalizer->ops[i].map);
    }
    fsdp_free(normalizer);
}

/* Return true if a Replace can match the empty text. At the beginning of a text, such a Replace
 * inserts bytes that come from no part of the original text, and later steps of the tokenizers
 * library treat these bytes differently (first_aligned() in aligned_text.c). */
bool fsdp_normalizer_needs_alignment(const fsdp_normalizer *normalizer)
{
    for (size_t i = 0; i < normalizer->n; i++)
        if (normalizer->ops[i].regex && fsdp_regex_matches_empty(normalizer->ops[i].regex))
            return true;
    return false;
}

fsdp_status fsdp_normalizer_work_create(fsdp_normalizer_work **out)
{
    fsdp_normalizer_work *work = fsdp_calloc(1, sizeof *work);
    if (!work)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_regex_work_create(&work->forms.regex_work);
    if (status != FSDP_OK) {
        fsdp_normalizer_work_destroy(work);
        return status;
    }
    *out = work;
    return FSDP_OK;
}

void fsdp_normalizer_work_destroy(fsdp_normalizer_work *work)
{
    if (!work)
        return;
    fsdp_regex_work_destroy(work->forms.regex_work);
    fsdp_free(work->forms.pending.items);
    fsdp_free(work->forms.sorted.items);
    fsdp_free(work->forms.held.items);
    fsdp_aligned_text_fini(&work->texts[0]);
    fsdp_aligned_text_fini(&work->texts[1]);
    fsdp_aligned_text_fini(&work->joined);
    fsdp_free(work);
}

fsdp_status fsdp_normalizer_apply(const fsdp_normalizer *normalizer, fsdp_normalizer_work *work,
                                  const fsdp_text_view *in, bool tracked, fsdp_text_view *out)
{
    if (!normalizer) {
        *out = *in;
        return FSDP_OK;
    }
    if (normalizer->has_shortcut && !tracked)
        return apply_shortcut(normalizer, work, in, out);
    return apply_steps(normalizer, work, in, tracked, out);
}
