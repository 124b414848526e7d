/* A post-processor is a list of steps. The parts of a Sequence become steps of the same list. A
 * step changes a list of groups, each of which has parts (fsdp_post_part). At first, there is one
 * group for each text, with this text as its only part. BertProcessing and RobertaProcessing add
 * parts to the groups. TemplateProcessing makes new groups from the old ones. */
#include "src/text/parts/post_processor.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/text/models/vocabulary.h"
#include "src/text/parts/token_json.h"

typedef enum post_type {
    POST_TEMPLATE,
    POST_BERT,
    POST_ROBERTA,
    POST_BYTE_LEVEL,
} post_type;

typedef struct post_piece {
    int text; /* 0: the text A; 1: the text B; -1: special tokens */
    int32_t type_id;
    size_t first, count; /* special tokens: ids [first, first + count) of post_op.ids */
} post_piece;

typedef struct post_template {
    post_piece pieces[FSDP_POST_PARTS_MAX];
    size_t n;
} post_template;

typedef struct post_op {
    post_type type;
    post_template templates[2]; /* TEMPLATE: [0] is for one text, [1] is for a pair of texts */
    /* TEMPLATE: the ids of all special tokens, in the order of the pieces that contain them;
     * owned */
    int32_t *ids;
    size_t ids_len, ids_cap;
    int32_t sep, cls; /* BERT and ROBERTA: the ids of [SEP] and [CLS] */
    /* ROBERTA and BYTE_LEVEL: the fields trim_offsets and add_prefix_space */
    bool trims, prefix_space;
} post_op;

struct fsdp_post_processor {
    post_op *ops;
    size_t n, cap;
};

/* ---- from JSON ---- */

/* Append the ids of the special token `name` to op->ids, and set out->first and out->count to their
 * range. `tokens` is the template's "special_tokens". */
static fsdp_status add_special(post_op *op, fsdp_json_node tokens, const char *name,
                               fsdp_json_node piece, post_piece *out)
{
    int64_t *ids = NULL;
    size_t count = 0;
    fsdp_json_node token = fsdp_json_find(tokens, name);
    if (fsdp_json_kind_of(token) != FSDP_JSON_OBJECT)
        return fsdp_json_mismatch(piece, "id", "the name of one of the special_tokens");
    FSDP_TRY(fsdp_json_get_i64s(token, "ids", 0, FSDP_TOKEN_ID_MAX, &ids, &count));
    out->first = op->ids_len;
    out->count = count;
    fsdp_status status = FSDP_OK;
    if (!FSDP_GROW(op->ids, op->ids_cap, op->ids_len + count))
        status = FSDP_ERR_NOMEM;
    for (size_t i = 0; status == FSDP_OK && i < count; i++)
        op->ids[op->ids_len++] = (int32_t)ids[i];
    fsdp_free(ids);
    return status;
}

static fsdp_status read_piece(post_op *op, fsdp_json_node tokens, fsdp_json_node node, bool is_pair,
                              post_piece *out)
{
    fsdp_json_node piece = fsdp_json_first(node);
    const char *name;
    int64_t type_id;
    if (fsdp_json_len(node) != 1 || fsdp_json_kind_of(piece) != FSDP_JSON_OBJECT)
        return fsdp_json_mismatch(node, NULL, "{\"Sequence\": ...} or {\"SpecialToken\": ...}");
    FSDP_TRY(fsdp_json_get_str(piece, "id", &name));
    FSDP_TRY(fsdp_json_get_i64(piece, "type_id", 0, INT32_MAX, &type_id));
    *out = (post_piece){.text = -1, .type_id = (int32_t)type_id};
    if (strcmp(piece.key, "SpecialToken") == 0)
        return add_special(op, tokens, name, piece, out);
    if (strcmp(piece.key, "Sequence") != 0)
        return fsdp_json_mismatch(node, NULL, "{\"Sequence\": ...} or {\"SpecialToken\": ...}");
    if (strcmp(name, "A") != 0 && (!is_pair || strcmp(name, "B") != 0))
        return fsdp_json_mismatch(piece, "id", is_pair ? "A or B" : "A");
    out->text = *name == 'B';
    return FSDP_OK;
}

static fsdp_status read_template(post_op *op, fsdp_json_node node, const char *key, bool is_pair)
{
    fsdp_json_node pieces, tokens;
    post_template *t = &op->templates[is_pair];
    FSDP_TRY(fsdp_json_get_array(node, key, &pieces));
    FSDP_TRY(fsdp_json_get_object(node, "special_tokens", &tokens));
    if (fsdp_json_len(pieces) > FSDP_POST_PARTS_MAX)
        return fsdp_json_mismatch(node, key, "at most %d pieces", (int)FSDP_POST_PARTS_MAX);
    for (; t->n < fsdp_json_len(pieces); t->n++)
        FSDP_TRY(read_piece(op, tokens, fsdp_json_at(pieces, t->n), is_pair, &t->pieces[t->n]));
    return FSDP_OK;
}

static fsdp_status read_templates(post_op *op, fsdp_json_node node)
{
    FSDP_TRY(fsdp_token_json_fields(node, "single pair special_tokens"));
    FSDP_TRY(read_template(op, node, "single", false));
    return read_template(op, node, "pair", true);
}

/* Read the id from a pair of a token and its id, such as ["[SEP]", 102]. */
static fsdp_status read_token(fsdp_json_node node, const char *key, int32_t *id)
{
    fsdp_json_node pair;
    int64_t value;
    FSDP_TRY(fsdp_json_get_array(node, key, &pair));
    if (fsdp_json_len(pair) != 2)
        return fsdp_json_mismatch(node, key, "a token and its id");
    FSDP_TRY(fsdp_json_get_i64(fsdp_json_at(pair, 1), NULL, 0, FSDP_TOKEN_ID_MAX, &value));
    *id = (int32_t)value;
    return FSDP_OK;
}

static fsdp_status read_bert(post_op *op, fsdp_json_node node)
{
    FSDP_TRY(fsdp_token_json_fields(node, "sep cls"));
    FSDP_TRY(read_token(node, "sep", &op->sep));
    return read_token(node, "cls", &op->cls);
}

static fsdp_status read_roberta(post_op *op, fsdp_json_node node)
{
    FSDP_TRY(fsdp_token_json_fields(node, "sep cls trim_offsets add_prefix_space"));
    FSDP_TRY(read_token(node, "sep", &op->sep));
    FSDP_TRY(read_token(node, "cls", &op->cls));
    FSDP_TRY(fsdp_json_get_bool(node, "trim_offsets", &op->trims));
    return fsdp_json_get_bool(node, "add_prefix_space", &op->prefix_space);
}

static fsdp_status read_byte_level(post_op *op, fsdp_json_node node)
{
    FSDP_TRY(fsdp_token_json_fields(node, "add_prefix_space trim_offsets use_regex"));
    FSDP_TRY(fsdp_json_get_bool(node, "add_prefix_space", &op->prefix_space));
    return fsdp_json_get_bool(node, "trim_offsets", &op->trims);
}

static fsdp_status add_part(fsdp_post_processor *post, fsdp_json_node node, int depth);

static fsdp_status add_sequence(fsdp_post_processor *post, fsdp_json_node node, int depth)
{
    fsdp_json_node parts;
    FSDP_TRY(fsdp_token_json_fields(node, "processors"));
    FSDP_TRY(fsdp_json_get_array(node, "processors", &parts));
    if (depth == FSDP_TOKEN_DEPTH_MAX)
        return fsdp_json_mismatch(node, "processors", "Sequences that are nested less deeply");
    for (size_t i = 0; i < fsdp_json_len(parts); i++)
        FSDP_TRY(add_part(post, fsdp_json_at(parts, i), depth + 1));
    return FSDP_OK;
}

static fsdp_status add_part(fsdp_post_processor *post, fsdp_json_node node, int depth)
{
    static const struct {
        const char *name;
        post_type type;
        fsdp_status (*read)(post_op *op, fsdp_json_node node);
    } kinds[] = {{"TemplateProcessing", POST_TEMPLATE, read_templates},
                 {"BertProcessing", POST_BERT, read_bert},
                 {"RobertaProcessing", POST_ROBERTA, read_roberta},
                 {"ByteLevel", POST_BYTE_LEVEL, read_byte_level}};
    const char *type;
    FSDP_TRY(fsdp_token_json_type(node, &type));
    if (strcmp(type, "Sequence") == 0)
        return add_sequence(post, node, depth);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, type) != 0)
            continue;
        if (post->n == FSDP_TOKEN_PARTS_MAX)
            return fsdp_json_mismatch(node, NULL, "a post-processor of at most %d steps",
                                      (int)FSDP_TOKEN_PARTS_MAX);
        if (!FSDP_GROW(post->ops, post->cap, post->n + 1))
            return FSDP_ERR_NOMEM;
        post_op *op = &post->ops[post->n++];
        *op = (post_op){.type = kinds[i].type};
        return kinds[i].read(op, node);
    }
    return fsdp_token_json_unknown(
        node, "post-processor",
        "BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing");
}

fsdp_status fsdp_post_processor_from_json(fsdp_json_node node, fsdp_post_processor **out)
{
    const fsdp_json_kind kind = fsdp_json_kind_of(node);
    if (kind == FSDP_JSON_NONE || kind == FSDP_JSON_NULL) {
        *out = NULL;
        return FSDP_OK;
    }
    fsdp_post_processor *post = fsdp_calloc(1, sizeof *post);
    if (!post)
        return FSDP_ERR_NOMEM;
    fsdp_status status = add_part(post, node, 0);
    if (status == FSDP_OK)
        for (int is_pair = 0; is_pair < 2 && status == FSDP_OK; is_pair++) {
            fsdp_post_part parts[FSDP_POST_PARTS_MAX];
            size_t count;
            status = fsdp_post_processor_plan(post, is_pair, true, parts, &count);
            fsdp_error_context(status, "%s: post_processor", fsdp_json_name(node.doc));
        }
    if (status != FSDP_OK) {
        fsdp_post_processor_destroy(post);
        return status;
    }
    *out = post;
    return FSDP_OK;
}

void fsdp_post_processor_destroy(fsdp_post_processor *post)
{
    if (!post)
        return;
    for (size_t i = 0; i < post->n; i++)
        fsdp_free(post->ops[i].ids);
    fsdp_free(post->ops);
    fsdp_free(post);
}

/* ---- properties ---- */

int32_t fsdp_post_processor_largest_id(const fsdp_post_processor *post)
{
    int32_t largest = -1;
    for (size_t i = 0; post && i < post->n; i++) {
        const post_op *op = &post->ops[i];
        for (size_t k = 0; k < op->ids_len; k++)
            largest = op->ids[k] > largest ? op->ids[k] : largest;
        if (op->type == POST_BERT || op->type == POST_ROBERTA) {
            largest = op->sep > largest ? op->sep : largest;
            largest = op->cls > largest ? op->cls : largest;
        }
    }
    return largest;
}

size_t fsdp_post_processor_added(const fsdp_post_processor *post, bool is_pair)
{
    size_t added = 0;
    for (size_t i = 0; post && i < post->n; i++) {
        const post_op *op = &post->ops[i];
        const post_template *t = &op->templates[is_pair];
        for (size_t k = 0; k < t->n; k++)
            added += t->pieces[k].count;
        if (op->type == POST_BERT)
            added += is_pair ? 3 : 2;
        if (op->type == POST_ROBERTA)
            added += is_pair ? 4 : 2;
    }
    return added;
}

bool fsdp_post_processor_trims(const fsdp_post_processor *post)
{
    for (size_t i = 0; post && i < post->n; i++)
        if (post->ops[i].trims)
            return true;
    return false;
}

/* Move the offsets of a token so that they exclude white space at both ends, like process_offsets()
 * of the tokenizers library. A leading space is kept if add_prefix_space may have added it. */
static void trim_place(const post_op *op, bool is_first, fsdp_token_place *place)
{
    uint32_t leading = place->leading_spaces;
    const uint32_t trailing = place->trailing_spaces;
    if (leading > 0) {
        if ((is_first || place->begin == 0) && op->prefix_space && leading == 1)
            leading = 0;
        place->begin = place->begin + leading < place->end ? place->begin + leading : place->end;
    }
    if (trailing > 0 && place->end >= trailing)
        place->end = place->end - trailing > place->begin ? place->end - trailing : place->begin;
}

void fsdp_post_processor_trim(const fsdp_post_processor *post, fsdp_token_sequence *sequence)
{
    for (size_t i = 0; post && i < post->n; i++)
        for (size_t k = 0; post->ops[i].trims && k < sequence->ids.len; k++)
            trim_place(&post->ops[i], k == 0, &sequence->places[k]);
}

/* ---- the plan ---- */

/* The parts of the result so far. group[i] is the number of the group to which parts[i] belongs.
 * The groups are in ascending order. */
typedef struct plan {
    fsdp_post_part parts[FSDP_POST_PARTS_MAX];
    size_t group[FSDP_POST_PARTS_MAX];
    size_t n, groups;
} plan;

static fsdp_status too_many_parts(void)
{
    return fsdp_error(FSDP_ERR_UNSUPPORTED, "the result would have more than %d parts",
                      (int)FSDP_POST_PARTS_MAX);
}

static fsdp_status append_part(plan *p, size_t group, fsdp_post_part part)
{
    if (p->n == FSDP_POST_PARTS_MAX)
        return too_many_parts();
    p->parts[p->n] = part;
    p->group[p->n++] = group;
    return FSDP_OK;
}

/* Copy the parts of group from_group of `from` to the end of `p`, as parts of group `group`. They
 * get the type type_id, or keep their types if type_id is negative. */
static fsdp_status append_group(plan *p, size_t group, const plan *from, size_t from_group,
                                int32_t type_id)
{
    for (size_t i = 0; i < from->n; i++) {
        fsdp_post_part part = from->parts[i];
        if (from->group[i] != from_group)
            continue;
        part.type_id = type_id < 0 ? part.type_id : type_id;
        FSDP_TRY(append_part(p, group, part));
    }
    return FSDP_OK;
}

static fsdp_status apply_template(const post_op *op, bool add_special_tokens, plan *p)
{
    const plan old = *p;
    if (old.groups > 2 || old.groups < 1)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "a TemplateProcessing after another one");
    const post_template *t = &op->templates[old.groups - 1];
    *p = (plan){.n = 0};
    for (size_t i = 0; i < t->n; i++) {
        const post_piece *piece = &t->pieces[i];
        if (piece->text >= 0)
            FSDP_TRY(append_group(p, p->groups++, &old, (size_t)piece->text, piece->type_id));
        else if (add_special_tokens)
            FSDP_TRY(append_part(
                p, p->groups++,
                (fsdp_post_part){-1, piece->type_id, op->ids + piece->first, piece->count}));
    }
    return FSDP_OK;
}

/* Add the special tokens of BertProcessing or RobertaProcessing. For one text, both give [CLS] A
 * [SEP]. For a pair, BertProcessing gives [CLS] A [SEP] B [SEP], and RobertaProcessing gives [CLS]
 * A [SEP] [SEP] B [SEP], with the type id 0 everywhere. */
static fsdp_status apply_bert(const post_op *op, bool add_special_tokens, plan *p)
{
    const plan old = *p;
    const bool roberta = op->type == POST_ROBERTA;
    *p = (plan){.groups = old.groups};
    for (size_t g = 0; g < old.groups; g++) {
        const int32_t type_id = roberta ? 0 : (int32_t)(g > 0);
        const fsdp_post_part cls = {-1, type_id, g ? &op->sep : &op->cls, 1};
        const fsdp_post_part sep = {-1, type_id, &op->sep, 1};
        if (add_special_tokens && (g == 0 || roberta))
            FSDP_TRY(append_part(p, g, cls));
        FSDP_TRY(append_group(p, g, &old, g, roberta ? 0 : -1));
        if (add_special_tokens)
            FSDP_TRY(append_part(p, g, sep));
    }
    return FSDP_OK;
}

fsdp_status fsdp_post_processor_plan(const fsdp_post_processor *post, bool is_pair,
                                     bool add_special_tokens,
                                     fsdp_post_part parts[FSDP_POST_PARTS_MAX], size_t *count)
{
    plan p = {.n = 0};
    for (int text = 0; text <= (int)is_pair; text++)
        FSDP_TRY(append_part(&p, p.groups++, (fsdp_post_part){.text = text, .type_id = text}));
    for (size_t i = 0; post && i < post->n; i++) {
        const post_op *op = &post->ops[i];
        if (op->type == POST_TEMPLATE)
            FSDP_TRY(apply_template(op, add_special_tokens, &p));
        else if (op->type != POST_BYTE_LEVEL)
            FSDP_TRY(apply_bert(op, add_special_tokens, &p));
    }
    memcpy(parts, p.parts, p.n * sizeof *parts);
    *count = p.n;
    return FSDP_OK;
}
