/* Makes the steps of a pre-tokenizer from its JSON object in a tokenizer.json. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/text/chars/utf8.h"
#include "src/text/parts/pre_tokenizer_ops.h"

static fsdp_status add_op(fsdp_pre_tokenizer *pre, fsdp_json_node node, fsdp_split_by by,
                          fsdp_split_behavior behavior, fsdp_pre_op **op)
{
    if (pre->n == FSDP_TOKEN_PARTS_MAX)
        return fsdp_json_mismatch(node, NULL, "a pre-tokenizer of at most %d steps",
                                  (int)FSDP_TOKEN_PARTS_MAX);
    *op = &pre->ops[pre->n++];
    **op = (fsdp_pre_op){.by = by, .behavior = behavior};
    return FSDP_OK;
}

static fsdp_status add_class(fsdp_pre_tokenizer *pre, fsdp_json_node node, uint16_t flags,
                             fsdp_split_behavior behavior)
{
    fsdp_pre_op *op = NULL;
    FSDP_TRY(add_op(pre, node, FSDP_SPLIT_CLASS, behavior, &op));
    op->flags = flags;
    return FSDP_OK;
}

static fsdp_status read_behavior(fsdp_json_node node, fsdp_split_behavior *behavior)
{
    static const char *const names[] = {
        [FSDP_SPLIT_REMOVED] = "Removed",
        [FSDP_SPLIT_ISOLATED] = "Isolated",
        [FSDP_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [FSDP_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
        [FSDP_SPLIT_CONTIGUOUS] = "Contiguous",
    };
    const char *name;
    FSDP_TRY(fsdp_json_get_str(node, "behavior", &name));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) {
            *behavior = (fsdp_split_behavior)i;
            return FSDP_OK;
        }
    return fsdp_json_mismatch(node, "behavior",
                              "Removed, Isolated, MergedWithPrevious, MergedWithNext or "
                              "Contiguous");
}

static fsdp_status add_text(fsdp_pre_op *op, const char *text)
{
    op->by = FSDP_SPLIT_TEXT;
    op->text = fsdp_strdup(text);
    return op->text ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status add_split(fsdp_pre_tokenizer *pre, fsdp_json_node node)
{
    fsdp_pre_op *op = NULL;
    const char *pattern;
    bool is_regex;
    FSDP_TRY(fsdp_token_json_fields(node, "pattern behavior invert"));
    FSDP_TRY(add_op(pre, node, FSDP_SPLIT_REGEX, FSDP_SPLIT_ISOLATED, &op));
    FSDP_TRY(read_behavior(node, &op->behavior));
    FSDP_TRY(fsdp_json_get_bool(node, "invert", &op->invert));
    FSDP_TRY(fsdp_token_json_pattern(node, "pattern", &pattern, &is_regex));
    if (!is_regex && *pattern)
        return add_text(op, pattern);
    op->words = is_regex ? fsdp_word_pattern_find(pattern) : FSDP_WORDS_OTHER;
    if (op->words == FSDP_WORDS_OTHER)
        return fsdp_regex_compile(pattern, &op->regex);
    op->by = FSDP_SPLIT_WORDS;
    return FSDP_OK;
}

static fsdp_status add_byte_level(fsdp_pre_tokenizer *pre, fsdp_json_node node)
{
    fsdp_pre_op *op = NULL;
    bool prefix, trim, regex;
    FSDP_TRY(fsdp_token_json_fields(node, "add_prefix_space trim_offsets use_regex"));
    FSDP_TRY(fsdp_json_get_bool(node, "add_prefix_space", &prefix));
    FSDP_TRY(fsdp_json_get_bool(node, "trim_offsets", &trim));
    FSDP_TRY(fsdp_json_opt_bool(node, "use_regex", true, &regex));
    FSDP_TRY(
        add_op(pre, node, regex ? FSDP_SPLIT_WORDS : FSDP_SPLIT_NOTHING, FSDP_SPLIT_ISOLATED, &op));
    op->words = FSDP_WORDS_GPT2;
    op->mark[0] = ' ';
    op->scheme = prefix ? FSDP_PREPEND_ALWAYS : FSDP_PREPEND_NEVER;
    op->byte_level = op->spells = true;
    return FSDP_OK;
}

static fsdp_status read_scheme(fsdp_json_node node, fsdp_prepend_scheme *scheme)
{
    static const char *const names[] = {"never", "first", "always"};
    const char *name;
    bool prefix;
    FSDP_TRY(fsdp_json_opt_str(node, "prepend_scheme", "always", &name));
    FSDP_TRY(fsdp_json_opt_bool(node, "add_prefix_space", true, &prefix));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) {
            *scheme = (fsdp_prepend_scheme)i;
            if (!prefix && i != FSDP_PREPEND_NEVER)
                return fsdp_json_mismatch(node, "add_prefix_space",
                                          "true, as the prepend_scheme is '%s'", name);
            return FSDP_OK;
        }
    return fsdp_json_mismatch(node, "prepend_scheme", "never, first or always");
}

static fsdp_status add_metaspace(fsdp_pre_tokenizer *pre, fsdp_json_node node)
{
    fsdp_pre_op *op = NULL;
    uint32_t c;
    bool split;
    FSDP_TRY(
        fsdp_token_json_fields(node, "replacement add_prefix_space prepend_scheme split str_rep"));
    FSDP_TRY(add_op(pre, node, FSDP_SPLIT_NOTHING, FSDP_SPLIT_MERGED_WITH_NEXT, &op));
    FSDP_TRY(fsdp_token_json_char(node, "replacement", &c));
    FSDP_TRY(read_scheme(node, &op->scheme));
    FSDP_TRY(fsdp_json_opt_bool(node, "split", true, &split));
    op->mark[fsdp_utf8_encode(c, op->mark)] = 0;
    op->replaces_spaces = true;
    return split ? add_text(op, op->mark) : FSDP_OK;
}

static fsdp_status add_digits(fsdp_pre_tokenizer *pre, fsdp_json_node node)
{
    bool individual;
    FSDP_TRY(fsdp_token_json_fields(node, "individual_digits"));
    FSDP_TRY(fsdp_json_get_bool(node, "individual_digits", &individual));
    return add_class(pre, node, FSDP_CHAR_NUMERIC,
                     individual ? FSDP_SPLIT_ISOLATED : FSDP_SPLIT_CONTIGUOUS);
}

static fsdp_status add_punctuation(fsdp_pre_tokenizer *pre, fsdp_json_node node)
{
    fsdp_split_behavior behavior = FSDP_SPLIT_ISOLATED;
    FSDP_TRY(fsdp_token_json_fields(node, "behavior"));
    if (fsdp_json_kind_of(fsdp_json_find(node, "behavior")) != FSDP_JSON_NONE)
        FSDP_TRY(read_behavior(node, &behavior));
    return add_class(pre, node, FSDP_CHAR_PUNCT, behavior);
}

static fsdp_status add_delimiter(fsdp_pre_tokenizer *pre, fsdp_json_node node)
{
    fsdp_pre_op *op = NULL;
    uint32_t c;
    char text[5];
    FSDP_TRY(fsdp_token_json_fields(node, "delimiter"));
    FSDP_TRY(fsdp_token_json_char(node, "delimiter", &c));
    FSDP_TRY(add_op(pre, node, FSDP_SPLIT_TEXT, FSDP_SPLIT_REMOVED, &op));
    text[fsdp_utf8_encode(c, text)] = 0;
    return add_text(op, text);
}

static fsdp_status add_fixed_length(fsdp_pre_tokenizer *pre, fsdp_json_node node)
{
    fsdp_pre_op *op = NULL;
    FSDP_TRY(fsdp_token_json_fields(node, "length"));
    FSDP_TRY(add_op(pre, node, FSDP_SPLIT_LENGTH, FSDP_SPLIT_ISOLATED, &op));
    return fsdp_json_opt_i64(node, "length", 1, INT32_MAX, 5, &op->length);
}

static fsdp_status add_whitespace(fsdp_pre_tokenizer *pre, fsdp_json_node node)
{
    fsdp_pre_op *op = NULL;
    FSDP_TRY(fsdp_token_json_fields(node, ""));
    return add_op(pre, node, FSDP_SPLIT_RUNS, FSDP_SPLIT_REMOVED, &op);
}

static fsdp_status add_scripts(fsdp_pre_tokenizer *pre, fsdp_json_node node)
{
    fsdp_pre_op *op = NULL;
    FSDP_TRY(fsdp_token_json_fields(node, ""));
    return add_op(pre, node, FSDP_SPLIT_SCRIPTS, FSDP_SPLIT_REMOVED, &op);
}

static fsdp_status add_whitespace_split(fsdp_pre_tokenizer *pre, fsdp_json_node node)
{
    FSDP_TRY(fsdp_token_json_fields(node, ""));
    return add_class(pre, node, FSDP_CHAR_WHITE, FSDP_SPLIT_REMOVED);
}

static fsdp_status add_bert(fsdp_pre_tokenizer *pre, fsdp_json_node node)
{
    FSDP_TRY(add_whitespace_split(pre, node));
    return add_class(pre, node, FSDP_CHAR_PUNCT, FSDP_SPLIT_ISOLATED);
}

static fsdp_status add_part(fsdp_pre_tokenizer *pre, fsdp_json_node node, int depth);

static fsdp_status add_sequence(fsdp_pre_tokenizer *pre, fsdp_json_node node, int depth)
{
    fsdp_json_node parts;
    FSDP_TRY(fsdp_token_json_fields(node, "pretokenizers"));
    FSDP_TRY(fsdp_json_get_array(node, "pretokenizers", &parts));
    if (depth == FSDP_TOKEN_DEPTH_MAX)
        return fsdp_json_mismatch(node, "pretokenizers", "Sequences that are nested less deeply");
    for (size_t i = 0; i < fsdp_json_len(parts); i++)
        FSDP_TRY(add_part(pre, fsdp_json_at(parts, i), depth + 1));
    return FSDP_OK;
}

static fsdp_status add_part(fsdp_pre_tokenizer *pre, fsdp_json_node node, int depth)
{
    static const struct {
        const char *type;
        fsdp_status (*add)(fsdp_pre_tokenizer *pre, fsdp_json_node node);
    } kinds[] = {{"BertPreTokenizer", add_bert},
                 {"ByteLevel", add_byte_level},
                 {"CharDelimiterSplit", add_delimiter},
                 {"Delimiter", add_delimiter},
                 {"Digits", add_digits},
                 {"FixedLength", add_fixed_length},
                 {"Metaspace", add_metaspace},
                 {"Punctuation", add_punctuation},
                 {"Split", add_split},
                 {"UnicodeScripts", add_scripts},
                 {"Whitespace", add_whitespace},
                 {"WhitespaceSplit", add_whitespace_split}};
    const char *type;
    FSDP_TRY(fsdp_token_json_type(node, &type));
    if (strcmp(type, "Sequence") == 0)
        return add_sequence(pre, node, depth);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].type, type) == 0)
            return kinds[i].add(pre, node);
    return fsdp_token_json_unknown(
        node, "pre-tokenizer that is supported",
        "BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, FixedLength, Metaspace, "
        "Punctuation, Sequence, Split, UnicodeScripts, Whitespace, WhitespaceSplit");
}

/* Return true if `op` and `next` are a pair of steps for which fsdp_pre_op.marks_words is true. */
static bool marks_words(const fsdp_pre_op *op, const fsdp_pre_op *next)
{
    return op->by == FSDP_SPLIT_CLASS && op->flags == FSDP_CHAR_WHITE &&
           op->behavior == FSDP_SPLIT_REMOVED && next->replaces_spaces &&
           next->scheme == FSDP_PREPEND_ALWAYS;
}

fsdp_status fsdp_pre_tokenizer_from_json(fsdp_json_node node, const fsdp_char_classes *classes,
                                         fsdp_pre_tokenizer **out)
{
    const fsdp_json_kind kind = fsdp_json_kind_of(node);
    if (kind == FSDP_JSON_NONE || kind == FSDP_JSON_NULL) {
        *out = NULL;
        return FSDP_OK;
    }
    fsdp_pre_tokenizer *pre = fsdp_calloc(1, sizeof *pre);
    if (!pre)
        return FSDP_ERR_NOMEM;
    pre->classes = classes;
    fsdp_status status = add_part(pre, node, 0);
    if (status != FSDP_OK) {
        fsdp_pre_tokenizer_destroy(pre);
        return status;
    }
    for (size_t i = 0; i + 1 < pre->n; i++)
        pre->ops[i].marks_words = marks_words(&pre->ops[i], &pre->ops[i + 1]);
    *out = pre;
    return FSDP_OK;
}

void fsdp_pre_tokenizer_destroy(fsdp_pre_tokenizer *pre)
{
    if (!pre)
        return;
    for (size_t i = 0; i < pre->n; i++) {
        fsdp_free(pre->ops[i].text);
        fsdp_regex_destroy(pre->ops[i].regex);
    }
    fsdp_free(pre);
}

bool fsdp_pre_tokenizer_ends_with_bytes(const fsdp_pre_tokenizer *pre)
{
    return pre && pre->n && pre->ops[pre->n - 1].byte_level;
}

void fsdp_pre_tokenizer_keep_bytes(fsdp_pre_tokenizer *pre)
{
    pre->ops[pre->n - 1].spells = false;
}

bool fsdp_pre_tokenizer_needs_origin(const fsdp_pre_tokenizer *pre)
{
    for (size_t i = 0; pre && i < pre->n; i++)
        if (pre->ops[i].scheme == FSDP_PREPEND_FIRST)
            return true;
    return false;
}
