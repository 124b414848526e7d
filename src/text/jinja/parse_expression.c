/* Parses expressions. The operators have the same precedence as in jinja2/parser.py. */
#include <string.h>

#include "src/base/assert.h"
#include "src/text/jinja/filters.h"
#include "src/text/jinja/parse.h"

/* ---- tokens ---------------------------------------------------------------------------------- */

bool fsdp_jinja_at_operator(const jinja_parser *parser, const char *op)
{
    const jinja_token *token = jinja_current(parser);
    return token->type == JINJA_TOKEN_OPERATOR && fsdp_jinja_string_is(&token->text, op);
}

bool fsdp_jinja_at_name(const jinja_parser *parser, const char *name)
{
    const jinja_token *token = jinja_current(parser);
    return token->type == JINJA_TOKEN_NAME && fsdp_jinja_string_is(&token->text, name);
}

bool fsdp_jinja_skip_operator(jinja_parser *parser, const char *op)
{
    const bool found = fsdp_jinja_at_operator(parser, op);
    parser->at += found;
    return found;
}

bool fsdp_jinja_skip_name(jinja_parser *parser, const char *name)
{
    const bool found = fsdp_jinja_at_name(parser, name);
    parser->at += found;
    return found;
}

fsdp_status fsdp_jinja_unexpected(const jinja_parser *parser, const char *what)
{
    const jinja_token *token = jinja_current(parser);
    if (token->type == JINJA_TOKEN_END)
        return fsdp_error(FSDP_ERR_FORMAT, "line %d: expected %s, found the end of the template",
                          token->line, what);
    const int bytes = token->text.bytes > 60 ? 60 : (int)token->text.bytes;
    const bool number = token->type == JINJA_TOKEN_NUMBER;
    return fsdp_error(FSDP_ERR_FORMAT, "line %d: expected %s, found %s%.*s%s", token->line, what,
                      number ? "a number" : "'", number ? 0 : bytes, token->text.data,
                      number ? "" : "'");
}

fsdp_status fsdp_jinja_expect_operator(jinja_parser *parser, const char *op)
{
    char what[8] = "'";
    if (fsdp_jinja_skip_operator(parser, op))
        return FSDP_OK;
    strncat(what, op, 4);
    strcat(what, "'");
    return fsdp_jinja_unexpected(parser, what);
}

fsdp_status fsdp_jinja_expect_name(jinja_parser *parser, const jinja_string **name)
{
    const jinja_token *token = jinja_current(parser);
    if (token->type != JINJA_TOKEN_NAME)
        return fsdp_jinja_unexpected(parser, "a name");
    *name = &token->text;
    parser->at++;
    return FSDP_OK;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

fsdp_status fsdp_jinja_node(jinja_parser *parser, jinja_node_type type, int line, jinja_node **out)
{
    FSDP_TRY(fsdp_jinja_alloc(parser->machine, sizeof **out, out));
    (*out)->type = type;
    (*out)->line = line;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_add_node(jinja_parser *parser, jinja_nodes *nodes, jinja_node *node)
{
    if (nodes->n == nodes->cap) {
        const size_t cap = nodes->cap ? 2 * nodes->cap : 4;
        jinja_node **items;
        FSDP_TRY(fsdp_jinja_alloc(parser->machine, cap * sizeof *items, &items));
        if (nodes->n)
            memcpy(items, nodes->items, nodes->n * sizeof *items);
        nodes->items = items;
        nodes->cap = cap;
    }
    nodes->items[nodes->n++] = node;
    return FSDP_OK;
}

static fsdp_status binary_node(jinja_parser *parser, jinja_node_type type, int line, jinja_node *a,
                               jinja_node *b, jinja_node **out)
{
    FSDP_TRY(fsdp_jinja_node(parser, type, line, out));
    (*out)->a = a;
    (*out)->b = b;
    return FSDP_OK;
}

/* Set *out to a string with the contents of `text`, the text of a token. Unlike the token, the
 * string is valid as long as the template. */
static fsdp_status copy_name(jinja_parser *parser, const jinja_string *text,
                             const jinja_string **out)
{
    jinja_value copy;
    FSDP_TRY(fsdp_jinja_substring(parser->machine, text->data, text->bytes, &copy));
    /* Count the characters now, so that renderings, which share the string, never write to it. */
    (void)fsdp_jinja_chars(copy.as.string);
    *out = copy.as.string;
    return FSDP_OK;
}

static fsdp_status constant_node(jinja_parser *parser, int line, jinja_value value,
                                 jinja_node **out)
{
    FSDP_TRY(fsdp_jinja_node(parser, JINJA_NODE_CONSTANT, line, out));
    (*out)->constant = value;
    return FSDP_OK;
}

/* ---- literals, names, brackets --------------------------------------------------------------- */

/* Parse a string. Several strings in a row become one constant. */
static fsdp_status parse_strings(jinja_parser *parser, jinja_node **out)
{
    const int line = jinja_current(parser)->line;
    jinja_value text;
    FSDP_TRY(fsdp_jinja_substring(parser->machine, "", 0, &text));
    while (jinja_current(parser)->type == JINJA_TOKEN_STRING) {
        FSDP_TRY(fsdp_jinja_concat(parser->machine, text.as.string, &jinja_current(parser)->text,
                                   &text));
        parser->at++;
    }
    /* renderings share this string, so they must not append to its buffer */
    text.as.string->buffer = NULL;
    (void)fsdp_jinja_chars(text.as.string);
    return constant_node(parser, line, text, out);
}

static fsdp_status parse_name(jinja_parser *parser, jinja_node **out)
{
    const jinja_token *token = jinja_current(parser);
    const jinja_string *name = &token->text;
    parser->at++;
    if (fsdp_jinja_string_is(name, "true") || fsdp_jinja_string_is(name, "True"))
        return constant_node(parser, token->line, jinja_bool(true), out);
    if (fsdp_jinja_string_is(name, "false") || fsdp_jinja_string_is(name, "False"))
        return constant_node(parser, token->line, jinja_bool(false), out);
    if (fsdp_jinja_string_is(name, "none") || fsdp_jinja_string_is(name, "None"))
        return constant_node(parser, token->line, jinja_none(), out);
    FSDP_TRY(fsdp_jinja_node(parser, JINJA_NODE_NAME, token->line, out));
    return copy_name(parser, name, &(*out)->name);
}

/* Parse expressions up to the closing bracket `close`. If `pairs` is true, each item has the form
 * `key: value`. */
static fsdp_status parse_bracket(jinja_parser *parser, jinja_node_type type, const char *close,
                                 bool pairs, jinja_node **out)
{
    jinja_node *node, *item;
    FSDP_TRY(fsdp_jinja_node(parser, type, jinja_current(parser)->line, &node));
    parser->at++;
    while (!fsdp_jinja_at_operator(parser, close)) {
        if (node->items.n)
            FSDP_TRY(fsdp_jinja_expect_operator(parser, ","));
        if (fsdp_jinja_at_operator(parser, close))
            break;
        FSDP_TRY(fsdp_jinja_parse_expression(parser, true, &item));
        FSDP_TRY(fsdp_jinja_add_node(parser, &node->items, item));
        if (!pairs)
            continue;
        FSDP_TRY(fsdp_jinja_expect_operator(parser, ":"));
        FSDP_TRY(fsdp_jinja_parse_expression(parser, true, &item));
        FSDP_TRY(fsdp_jinja_add_node(parser, &node->items, item));
    }
    parser->at++;
    *out = node;
    return FSDP_OK;
}

static bool at_tuple_end(const jinja_parser *parser, const char *end)
{
    const jinja_token_type type = jinja_current(parser)->type;
    return type == JINJA_TOKEN_VARIABLE_END || type == JINJA_TOKEN_BLOCK_END ||
           fsdp_jinja_at_operator(parser, ")") || (end && fsdp_jinja_at_name(parser, end));
}

/* Parse one item, or a tuple of items. parse_item() parses each item. Outside of parentheses, an
 * empty tuple is an error. */
static fsdp_status parse_items(jinja_parser *parser,
                               fsdp_status (*parse_item)(jinja_parser *parser, bool flag,
                                                         jinja_node **out),
                               bool flag, const char *end, bool parentheses, jinja_node **out)
{
    jinja_node *tuple, *item = NULL;
    bool is_tuple = false;
    FSDP_TRY(fsdp_jinja_node(parser, JINJA_NODE_TUPLE, jinja_current(parser)->line, &tuple));
    while (!at_tuple_end(parser, end)) {
        FSDP_TRY(parse_item(parser, flag, &item));
        FSDP_TRY(fsdp_jinja_add_node(parser, &tuple->items, item));
        if (!fsdp_jinja_skip_operator(parser, ","))
            break;
        is_tuple = true;
    }
    if (!is_tuple && !tuple->items.n && !parentheses)
        return fsdp_jinja_unexpected(parser, "an expression");
    *out = is_tuple || !tuple->items.n ? tuple : item;
    return FSDP_OK;
}

static fsdp_status parse_parentheses(jinja_parser *parser, jinja_node **out)
{
    parser->at++;
    FSDP_TRY(parse_items(parser, fsdp_jinja_parse_expression, true, NULL, true, out));
    return fsdp_jinja_expect_operator(parser, ")");
}

static fsdp_status parse_primary(jinja_parser *parser, jinja_node **out)
{
    const jinja_token *token = jinja_current(parser);
    switch (token->type) {
    case JINJA_TOKEN_NAME:
        return parse_name(parser, out);
    case JINJA_TOKEN_STRING:
        return parse_strings(parser, out);
    case JINJA_TOKEN_NUMBER:
        parser->at++;
        return constant_node(parser, token->line, token->number, out);
    case JINJA_TOKEN_OPERATOR:
        if (fsdp_jinja_at_operator(parser, "("))
            return parse_parentheses(parser, out);
        if (fsdp_jinja_at_operator(parser, "["))
            return parse_bracket(parser, JINJA_NODE_LIST, "]", false, out);
        if (fsdp_jinja_at_operator(parser, "{"))
            return parse_bracket(parser, JINJA_NODE_DICT, "}", true, out);
        break;
    default:
        break;
    }
    return fsdp_jinja_unexpected(parser, "an expression");
}

/* ---- calls ----------------------------------------------------------------------------------- */

static bool at_keyword(const jinja_parser *parser)
{
    const jinja_token *next = &parser->tokens[parser->at + 1];
    return jinja_current(parser)->type == JINJA_TOKEN_NAME && next->type == JINJA_TOKEN_OPERATOR &&
           fsdp_jinja_string_is(&next->text, "=");
}

static fsdp_status call_error(const jinja_parser *parser)
{
    return fsdp_error(FSDP_ERR_FORMAT, "line %d: the arguments of a call are in a wrong order",
                      jinja_current(parser)->line);
}

static fsdp_status parse_keyword(jinja_parser *parser, jinja_call *call)
{
    const jinja_string *name = NULL;
    const jinja_string **names;
    jinja_node *value;
    FSDP_TRY(copy_name(parser, &jinja_current(parser)->text, &name));
    parser->at += 2;
    FSDP_TRY(fsdp_jinja_parse_expression(parser, true, &value));
    for (size_t i = 0; i < call->keywords.n; i++)
        if (call->names[i]->bytes == name->bytes &&
            memcmp(call->names[i]->data, name->data, name->bytes) == 0)
            return fsdp_error(FSDP_ERR_FORMAT, "line %d: the argument '%.*s' is repeated",
                              value->line, fsdp_jinja_shown(name), name->data);
    if (call->keywords.n >= 255)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "line %d: a call with more than 255 keywords",
                          value->line);
    FSDP_TRY(fsdp_jinja_add_node(parser, &call->keywords, value));
    FSDP_TRY(fsdp_jinja_alloc(parser->machine, call->keywords.n * sizeof *names, &names));
    if (call->keywords.n > 1)
        memcpy(names, call->names, (call->keywords.n - 1) * sizeof *names);
    names[call->keywords.n - 1] = name;
    call->names = names;
    return FSDP_OK;
}

static fsdp_status parse_argument(jinja_parser *parser, jinja_call *call)
{
    jinja_node *value;
    if (fsdp_jinja_at_operator(parser, "*")) {
        if (call->more || call->more_keywords)
            return call_error(parser);
        parser->at++;
        return fsdp_jinja_parse_expression(parser, true, &call->more);
    }
    if (fsdp_jinja_at_operator(parser, "**")) {
        if (call->more_keywords)
            return call_error(parser);
        parser->at++;
        return fsdp_jinja_parse_expression(parser, true, &call->more_keywords);
    }
    if (at_keyword(parser))
        return call->more_keywords ? call_error(parser) : parse_keyword(parser, call);
    if (call->more || call->more_keywords || call->keywords.n)
        return call_error(parser);
    FSDP_TRY(fsdp_jinja_parse_expression(parser, true, &value));
    return fsdp_jinja_add_node(parser, &call->positional, value);
}

/* Parse the arguments of a call, with their parentheses. */
static fsdp_status parse_arguments(jinja_parser *parser, jinja_call **out)
{
    jinja_call *call;
    bool first = true;
    FSDP_TRY(fsdp_jinja_alloc(parser->machine, sizeof *call, &call));
    FSDP_TRY(fsdp_jinja_expect_operator(parser, "("));
    for (; !fsdp_jinja_at_operator(parser, ")"); first = false) {
        if (!first)
            FSDP_TRY(fsdp_jinja_expect_operator(parser, ","));
        if (!first && fsdp_jinja_at_operator(parser, ")"))
            break;
        FSDP_TRY(parse_argument(parser, call));
    }
    parser->at++;
    *out = call;
    return FSDP_OK;
}

static fsdp_status parse_call(jinja_parser *parser, jinja_node *callee, jinja_node **out)
{
    FSDP_TRY(binary_node(parser, JINJA_NODE_CALL, jinja_current(parser)->line, callee, NULL, out));
    return parse_arguments(parser, &(*out)->as.call);
}

/* ---- what can follow a value: .name, [index], (arguments), filters, tests -------------------- */

/* Parse what is between the brackets of value[...]: an index, or a slice. Set *is_slice to true for
 * a slice, and bounds[0..2] to its bounds. */
static fsdp_status parse_index(jinja_parser *parser, jinja_node **index, jinja_node *bounds[3],
                               bool *is_slice)
{
    *index = NULL;
    *is_slice = false;
    if (!fsdp_jinja_at_operator(parser, ":"))
        FSDP_TRY(fsdp_jinja_parse_expression(parser, true, index));
    if (!fsdp_jinja_at_operator(parser, ":"))
        return FSDP_OK;
    *is_slice = true;
    bounds[0] = *index;
    for (int i = 1; i < 3 && fsdp_jinja_skip_operator(parser, ":"); i++)
        if (!fsdp_jinja_at_operator(parser, ":") && !fsdp_jinja_at_operator(parser, "]") &&
            !fsdp_jinja_at_operator(parser, ","))
            FSDP_TRY(fsdp_jinja_parse_expression(parser, true, &bounds[i]));
    return FSDP_OK;
}

static fsdp_status parse_subscript(jinja_parser *parser, jinja_node *value, jinja_node **out)
{
    const int line = jinja_current(parser)->line;
    jinja_node *bounds[3] = {NULL}, *index, *tuple, *node;
    bool is_slice;
    parser->at++;
    FSDP_TRY(parse_index(parser, &index, bounds, &is_slice));
    if (fsdp_jinja_at_operator(parser, ",")) {
        if (is_slice)
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "line %d: several slices in brackets are not supported", line);
        FSDP_TRY(fsdp_jinja_node(parser, JINJA_NODE_TUPLE, line, &tuple));
        FSDP_TRY(fsdp_jinja_add_node(parser, &tuple->items, index));
        while (fsdp_jinja_skip_operator(parser, ",")) {
            if (fsdp_jinja_at_operator(parser, "]"))
                break;
            FSDP_TRY(fsdp_jinja_parse_expression(parser, true, &index));
            FSDP_TRY(fsdp_jinja_add_node(parser, &tuple->items, index));
        }
        index = tuple;
    }
    FSDP_TRY(fsdp_jinja_expect_operator(parser, "]"));
    FSDP_TRY(binary_node(parser, is_slice ? JINJA_NODE_SLICE : JINJA_NODE_ITEM, line, value,
                         is_slice ? NULL : index, &node));
    for (int i = 0; is_slice && i < 3; i++)
        FSDP_TRY(fsdp_jinja_add_node(parser, &node->items, bounds[i]));
    *out = node;
    return FSDP_OK;
}

static fsdp_status parse_dot(jinja_parser *parser, jinja_node *value, jinja_node **out)
{
    const int line = jinja_current(parser)->line;
    const jinja_string *name = NULL;
    jinja_node *index;
    parser->at++;
    const jinja_token *token = jinja_current(parser);
    if (token->type == JINJA_TOKEN_NUMBER && token->number.kind == JINJA_INT) {
        parser->at++;
        FSDP_TRY(constant_node(parser, line, token->number, &index));
        return binary_node(parser, JINJA_NODE_ITEM, line, value, index, out);
    }
    FSDP_TRY(fsdp_jinja_expect_name(parser, &name));
    FSDP_TRY(binary_node(parser, JINJA_NODE_ATTRIBUTE, line, value, NULL, out));
    return copy_name(parser, name, &(*out)->name);
}

static fsdp_status check_chain(const jinja_parser *parser, int length)
{
    if (length <= JINJA_MAX_NESTING)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "line %d: an expression with more than %d parts in a "
                      "row is not supported",
                      jinja_current(parser)->line, JINJA_MAX_NESTING);
}

static fsdp_status parse_postfix(jinja_parser *parser, jinja_node *value, jinja_node **out)
{
    for (int length = 0;; length++) {
        FSDP_TRY(check_chain(parser, length));
        if (fsdp_jinja_at_operator(parser, "."))
            FSDP_TRY(parse_dot(parser, value, &value));
        else if (fsdp_jinja_at_operator(parser, "["))
            FSDP_TRY(parse_subscript(parser, value, &value));
        else if (fsdp_jinja_at_operator(parser, "("))
            FSDP_TRY(parse_call(parser, value, &value));
        else
            break;
    }
    *out = value;
    return FSDP_OK;
}

/* Parse the name of a filter or test. Jinja2 allows dots in a name, but no existing filter or test
 * has a dot in its name. */
static fsdp_status parse_dotted_name(jinja_parser *parser, const jinja_string **name)
{
    FSDP_TRY(fsdp_jinja_expect_name(parser, name));
    if (fsdp_jinja_at_operator(parser, "."))
        return fsdp_error(FSDP_ERR_FORMAT, "line %d: no filter or test named '%.*s.…'",
                          jinja_current(parser)->line, fsdp_jinja_shown(*name), (*name)->data);
    return copy_name(parser, *name, name);
}

static fsdp_status check_function(const jinja_parser *parser, const char *what,
                                  const jinja_string *name, int line, bool exists, bool supported)
{
    const int bytes = fsdp_jinja_shown(name);
    if (exists && !supported)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "line %d: %s '%.*s' is not supported", line, what,
                          bytes, name->data);
    if (!exists && !parser->conditional)
        return fsdp_error(FSDP_ERR_FORMAT, "line %d: no %s named '%.*s'", line, what, bytes,
                          name->data);
    return FSDP_OK;
}

fsdp_status fsdp_jinja_parse_filters(jinja_parser *parser, jinja_node *node, bool inline_first,
                                     jinja_node **out)
{
    for (int length = 0; inline_first || fsdp_jinja_skip_operator(parser, "|"); length++) {
        const int line = jinja_current(parser)->line;
        const jinja_string *name = NULL;
        jinja_node *filter;
        inline_first = false;
        FSDP_TRY(check_chain(parser, length));
        FSDP_TRY(parse_dotted_name(parser, &name));
        FSDP_TRY(binary_node(parser, JINJA_NODE_FILTER, line, node, NULL, &filter));
        filter->name = name;
        filter->function.filter = fsdp_jinja_find_filter(name);
        FSDP_TRY(check_function(parser, "filter", name, line, filter->function.filter != NULL,
                                filter->function.filter && filter->function.filter->call));
        if (fsdp_jinja_at_operator(parser, "("))
            FSDP_TRY(parse_arguments(parser, &filter->as.call));
        else
            FSDP_TRY(fsdp_jinja_alloc(parser->machine, sizeof *filter->as.call, &filter->as.call));
        node = filter;
    }
    *out = node;
    return FSDP_OK;
}

/* Return true if the current token begins an argument of a test without parentheses, as in `x is
 * divisibleby 3`. */
static bool at_bare_argument(const jinja_parser *parser)
{
    switch (jinja_current(parser)->type) {
    case JINJA_TOKEN_NAME:
        return !fsdp_jinja_at_name(parser, "else") && !fsdp_jinja_at_name(parser, "or") &&
               !fsdp_jinja_at_name(parser, "and");
    case JINJA_TOKEN_STRING:
    case JINJA_TOKEN_NUMBER:
        return true;
    default:
        return fsdp_jinja_at_operator(parser, "[") || fsdp_jinja_at_operator(parser, "{");
    }
}

static fsdp_status parse_test(jinja_parser *parser, jinja_node *value, jinja_node **out)
{
    const int line = jinja_current(parser)->line;
    jinja_node *test, *argument;
    const jinja_string *name = NULL;
    parser->at++;
    const bool negated = fsdp_jinja_skip_name(parser, "not");
    FSDP_TRY(parse_dotted_name(parser, &name));
    FSDP_TRY(binary_node(parser, JINJA_NODE_TEST, line, value, NULL, &test));
    test->name = name;
    test->function.test = fsdp_jinja_find_test(name);
    FSDP_TRY(check_function(parser, "test", name, line, test->function.test != NULL,
                            test->function.test && test->function.test->call));
    if (fsdp_jinja_at_operator(parser, "(")) {
        FSDP_TRY(parse_arguments(parser, &test->as.call));
    } else {
        FSDP_TRY(fsdp_jinja_alloc(parser->machine, sizeof *test->as.call, &test->as.call));
        if (fsdp_jinja_at_name(parser, "is"))
            return fsdp_error(FSDP_ERR_FORMAT, "line %d: tests cannot be chained with 'is'", line);
        if (at_bare_argument(parser)) {
            FSDP_TRY(parse_primary(parser, &argument));
            FSDP_TRY(parse_postfix(parser, argument, &argument));
            FSDP_TRY(fsdp_jinja_add_node(parser, &test->as.call->positional, argument));
        }
    }
    *out = test;
    return negated ? binary_node(parser, JINJA_NODE_NOT, line, test, NULL, out) : FSDP_OK;
}

static fsdp_status parse_filters_and_tests(jinja_parser *parser, jinja_node *value,
                                           jinja_node **out)
{
    for (int length = 0;; length++) {
        FSDP_TRY(check_chain(parser, length));
        if (fsdp_jinja_at_operator(parser, "|"))
            FSDP_TRY(fsdp_jinja_parse_filters(parser, value, false, &value));
        else if (fsdp_jinja_at_name(parser, "is"))
            FSDP_TRY(parse_test(parser, value, &value));
        else if (fsdp_jinja_at_operator(parser, "("))
            FSDP_TRY(parse_call(parser, value, &value));
        else
            break;
    }
    *out = value;
    return FSDP_OK;
}

/* ---- operators ------------------------------------------------------------------------------- */

static fsdp_status descend(jinja_parser *parser)
{
    if (++parser->depth > JINJA_MAX_NESTING)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "line %d: nested more than %d deep",
                          jinja_current(parser)->line, JINJA_MAX_NESTING);
    return FSDP_OK;
}

static fsdp_status parse_unary(jinja_parser *parser, bool with_filters, jinja_node **out)
{
    const int line = jinja_current(parser)->line;
    jinja_node *value;
    FSDP_TRY(descend(parser));
    const bool minus = fsdp_jinja_skip_operator(parser, "-");
    if (minus || fsdp_jinja_skip_operator(parser, "+")) {
        FSDP_TRY(parse_unary(parser, false, &value));
        FSDP_TRY(binary_node(parser, minus ? JINJA_NODE_NEGATE : JINJA_NODE_PLUS, line, value, NULL,
                             &value));
    } else {
        FSDP_TRY(parse_primary(parser, &value));
    }
    FSDP_TRY(parse_postfix(parser, value, &value));
    if (with_filters)
        FSDP_TRY(parse_filters_and_tests(parser, value, &value));
    parser->depth--;
    *out = value;
    return FSDP_OK;
}

/* The binary operators of one precedence. `rows` has the operators with the highest precedence
 * first. */
typedef struct operator_row {
    const char *texts[4];
    jinja_operator ops[4];
} operator_row;

static const operator_row rows[] = {
    {{"**"}, {JINJA_POWER}},
    {{"*", "/", "//", "%"}, {JINJA_MULTIPLY, JINJA_DIVIDE, JINJA_FLOOR_DIVIDE, JINJA_MODULO}},
    {{"~"}, {JINJA_ADD}},
    {{"+", "-"}, {JINJA_ADD, JINJA_SUBTRACT}},
};
enum {
    CONCAT_ROW = 2
};

static bool skip_row(jinja_parser *parser, const operator_row *row, jinja_operator *op)
{
    for (int i = 0; i < 4 && row->texts[i]; i++) {
        if (fsdp_jinja_skip_operator(parser, row->texts[i])) {
            *op = row->ops[i];
            return true;
        }
    }
    return false;
}

/* Parse a chain of operators of rows[row]. The operands are chains of operators of the previous
 * row. All operators are left-associative, even **. */
static fsdp_status parse_row(jinja_parser *parser, int row, jinja_node **out)
{
    jinja_node *left, *right, *node;
    jinja_operator op;
    const int line = jinja_current(parser)->line;
    if (row < 0)
        return parse_unary(parser, true, out);
    FSDP_TRY(parse_row(parser, row - 1, &left));
    for (int length = 0; skip_row(parser, &rows[row], &op); length++) {
        FSDP_TRY(check_chain(parser, row == CONCAT_ROW ? 0 : length));
        FSDP_TRY(parse_row(parser, row - 1, &right));
        if (row == CONCAT_ROW && length) {
            FSDP_TRY(fsdp_jinja_add_node(parser, &left->items, right));
            continue;
        }
        FSDP_TRY(binary_node(parser, row == CONCAT_ROW ? JINJA_NODE_CONCAT : JINJA_NODE_OPERATE,
                             line, left, right, &node));
        node->as.op = op;
        if (row == CONCAT_ROW) {
            FSDP_TRY(fsdp_jinja_add_node(parser, &node->items, left));
            FSDP_TRY(fsdp_jinja_add_node(parser, &node->items, right));
        }
        left = node;
    }
    *out = left;
    return FSDP_OK;
}

static bool skip_compare(jinja_parser *parser, jinja_compare *compare)
{
    static const char *const texts[] = {"==", "!=", "<", "<=", ">", ">="};
    for (int i = 0; i < (int)FSDP_LENGTH(texts); i++) {
        if (fsdp_jinja_skip_operator(parser, texts[i])) {
            *compare = (jinja_compare)i;
            return true;
        }
    }
    if (fsdp_jinja_skip_name(parser, "in")) {
        *compare = JINJA_IN;
        return true;
    }
    const jinja_token *next = &parser->tokens[parser->at + 1];
    if (!fsdp_jinja_at_name(parser, "not") || next->type != JINJA_TOKEN_NAME ||
        !fsdp_jinja_string_is(&next->text, "in"))
        return false;
    parser->at += 2;
    *compare = JINJA_NOT_IN;
    return true;
}

static fsdp_status parse_compare(jinja_parser *parser, jinja_node **out)
{
    const int line = jinja_current(parser)->line;
    jinja_node *node = NULL, *left, *right;
    jinja_compare compare;
    FSDP_TRY(parse_row(parser, FSDP_LENGTH(rows) - 1, &left));
    *out = left;
    for (size_t n = 0; skip_compare(parser, &compare); n++) {
        FSDP_TRY(check_chain(parser, (int)n));
        FSDP_TRY(parse_row(parser, FSDP_LENGTH(rows) - 1, &right));
        if (!node) {
            FSDP_TRY(binary_node(parser, JINJA_NODE_COMPARE, line, left, NULL, &node));
            FSDP_TRY(fsdp_jinja_alloc(parser->machine,
                                      (JINJA_MAX_NESTING + 1) * sizeof *node->as.compares,
                                      &node->as.compares));
        }
        node->as.compares[n] = compare;
        FSDP_TRY(fsdp_jinja_add_node(parser, &node->items, right));
        *out = node;
    }
    return FSDP_OK;
}

static fsdp_status parse_not(jinja_parser *parser, jinja_node **out)
{
    const int line = jinja_current(parser)->line;
    if (!fsdp_jinja_skip_name(parser, "not"))
        return parse_compare(parser, out);
    jinja_node *value;
    FSDP_TRY(descend(parser));
    FSDP_TRY(parse_not(parser, &value));
    parser->depth--;
    return binary_node(parser, JINJA_NODE_NOT, line, value, NULL, out);
}

static fsdp_status parse_and(jinja_parser *parser, jinja_node **out)
{
    const int line = jinja_current(parser)->line;
    jinja_node *left, *right;
    FSDP_TRY(parse_not(parser, &left));
    for (int length = 0; fsdp_jinja_skip_name(parser, "and"); length++) {
        FSDP_TRY(check_chain(parser, length));
        FSDP_TRY(parse_not(parser, &right));
        FSDP_TRY(binary_node(parser, JINJA_NODE_AND, line, left, right, &left));
    }
    *out = left;
    return FSDP_OK;
}

static fsdp_status parse_or(jinja_parser *parser, jinja_node **out)
{
    const int line = jinja_current(parser)->line;
    jinja_node *left, *right;
    FSDP_TRY(parse_and(parser, &left));
    for (int length = 0; fsdp_jinja_skip_name(parser, "or"); length++) {
        FSDP_TRY(check_chain(parser, length));
        FSDP_TRY(parse_and(parser, &right));
        FSDP_TRY(binary_node(parser, JINJA_NODE_OR, line, left, right, &left));
    }
    *out = left;
    return FSDP_OK;
}

/* Parse `a if b else c`, or only `a`. There is a difference from Jinja2: if `a`, `b` or `c`
 * contains an unknown filter or test, Jinja2 reports its name only when the template applies it.
 * Here, opening the template fails, because `a` has been parsed before `if` is found. No known
 * template depends on this. */
static fsdp_status parse_condition(jinja_parser *parser, jinja_node **out)
{
    const int line = jinja_current(parser)->line;
    jinja_node *value, *test, *otherwise, *node;
    FSDP_TRY(parse_or(parser, &value));
    for (int length = 0; fsdp_jinja_skip_name(parser, "if"); length++) {
        FSDP_TRY(check_chain(parser, length));
        otherwise = NULL;
        FSDP_TRY(parse_or(parser, &test));
        if (fsdp_jinja_skip_name(parser, "else")) {
            FSDP_TRY(descend(parser));
            FSDP_TRY(parse_condition(parser, &otherwise));
            parser->depth--;
        }
        FSDP_TRY(binary_node(parser, JINJA_NODE_CONDITION, line, value, test, &node));
        node->c = otherwise;
        value = node;
    }
    *out = value;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_parse_expression(jinja_parser *parser, bool condition, jinja_node **out)
{
    FSDP_TRY(descend(parser));
    FSDP_TRY(condition ? parse_condition(parser, out) : parse_or(parser, out));
    parser->depth--;
    return FSDP_OK;
}

fsdp_status fsdp_jinja_parse_tuple(jinja_parser *parser, bool condition, const char *end,
                                   jinja_node **out)
{
    return parse_items(parser, fsdp_jinja_parse_expression, condition, end, false, out);
}

/* ---- targets of assignments ------------------------------------------------------------------ */

static fsdp_status target_error(const jinja_parser *parser)
{
    return fsdp_jinja_unexpected(parser, "a name to assign to");
}

static fsdp_status parse_target_items(jinja_parser *parser, bool attributes, jinja_node **out);

fsdp_status fsdp_jinja_parse_target_name(jinja_parser *parser, jinja_node **out)
{
    static const char *const constants[] = {"true", "True", "false", "False", "none", "None"};
    const jinja_string *name = NULL;
    jinja_node *node;
    if (jinja_current(parser)->type != JINJA_TOKEN_NAME)
        return target_error(parser);
    for (size_t i = 0; i < FSDP_LENGTH(constants); i++)
        if (fsdp_jinja_at_name(parser, constants[i]))
            return target_error(parser);
    FSDP_TRY(fsdp_jinja_node(parser, JINJA_NODE_NAME, jinja_current(parser)->line, &node));
    FSDP_TRY(fsdp_jinja_expect_name(parser, &name));
    FSDP_TRY(copy_name(parser, name, &node->name));
    node->as.stores = true;
    *out = node;
    return FSDP_OK;
}

/* Parse one item of the left side of an assignment: a name, name.attribute, or a tuple in
 * parentheses. */
static fsdp_status parse_target_item(jinja_parser *parser, bool attributes, jinja_node **out)
{
    const jinja_string *name = NULL;
    jinja_node *node, *attribute;
    if (fsdp_jinja_at_operator(parser, "(")) {
        FSDP_TRY(descend(parser));
        parser->at++;
        FSDP_TRY(parse_target_items(parser, attributes, out));
        parser->depth--;
        return fsdp_jinja_expect_operator(parser, ")");
    }
    FSDP_TRY(fsdp_jinja_parse_target_name(parser, &node));
    *out = node;
    if (!attributes || !fsdp_jinja_skip_operator(parser, "."))
        return FSDP_OK;
    node->as.stores = false;
    FSDP_TRY(binary_node(parser, JINJA_NODE_ATTRIBUTE, node->line, node, NULL, &attribute));
    FSDP_TRY(fsdp_jinja_expect_name(parser, &name));
    *out = attribute;
    return copy_name(parser, name, &attribute->name);
}

static fsdp_status parse_target_items(jinja_parser *parser, bool attributes, jinja_node **out)
{
    return parse_items(parser, parse_target_item, attributes, NULL, true, out);
}

fsdp_status fsdp_jinja_parse_target(jinja_parser *parser, bool attributes, const char *end,
                                    jinja_node **out)
{
    return parse_items(parser, parse_target_item, attributes, end, false, out);
}
