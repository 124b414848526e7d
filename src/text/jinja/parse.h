/* Parses a template. parse.c parses statements, and parse_expression.c parses expressions. */
#pragma once
#include "src/text/jinja/ast.h"
#include "src/text/jinja/lexer.h"

enum {
    JINJA_MAX_NESTING = 100 /* largest depth of nested expressions and blocks */
};

typedef struct jinja_parser {
    jinja_machine *machine; /* owns the memory of the nodes */
    const jinja_token *tokens;
    size_t at;
    int depth;
    /* number of open if blocks; in an if block, an unknown filter or test is not an error until the
     * template is run and applies it */
    int conditional;
} jinja_parser;

/* ---- tokens ---- */
static inline const jinja_token *jinja_current(const jinja_parser *parser)
{
    return &parser->tokens[parser->at];
}

bool fsdp_jinja_at_operator(const jinja_parser *parser, const char *op);
bool fsdp_jinja_at_name(const jinja_parser *parser, const char *name);
/* If the current token is this operator, or this name, skip the token and return true. */
bool fsdp_jinja_skip_operator(jinja_parser *parser, const char *op);
bool fsdp_jinja_skip_name(jinja_parser *parser, const char *name);
/* Skip the current token. Return an error if it is not the operator `op`. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_expect_operator(jinja_parser *parser, const char *op);
/* Skip the current token, and set *name to its text. Return an error if the token is not a name. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_expect_name(jinja_parser *parser, const jinja_string **name);
/* Return the error for an unexpected token, such as "line 3: expected `what`, found '%}'". */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_unexpected(const jinja_parser *parser, const char *what);

/* ---- nodes ---- */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_node(jinja_parser *parser, jinja_node_type type, int line,
                                            jinja_node **out);
FSDP_MUST_CHECK fsdp_status fsdp_jinja_add_node(jinja_parser *parser, jinja_nodes *nodes,
                                                jinja_node *node);

/* ---- expressions ---- */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_parse_expression(jinja_parser *parser, bool condition,
                                                        jinja_node **out);
/* Parse an expression. If a comma follows, parse several expressions that are separated by commas;
 * they become a tuple. If `condition` is true, each of them may have the form `a if b else c`. If
 * `end` is not NULL, the name `end` ends the tuple. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_parse_tuple(jinja_parser *parser, bool condition,
                                                   const char *end, jinja_node **out);
/* Parse the left side of an assignment: a name, or a tuple of names. If `attributes` is true,
 * name.attribute is allowed instead of a name, for namespaces. `end` is the same as in
 * fsdp_jinja_parse_tuple(). */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_parse_target(jinja_parser *parser, bool attributes,
                                                    const char *end, jinja_node **out);
/* Parse the left side of an assignment that must be a single name. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_parse_target_name(jinja_parser *parser, jinja_node **out);
/* Parse filters that are applied to `node`: `| name(...) | name ...`. `node` is NULL in a filter
 * block. If inline_first is true, there is no bar before the first filter. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_parse_filters(jinja_parser *parser, jinja_node *node,
                                                     bool inline_first, jinja_node **out);

/* Parse a template. The tree is in the memory of `machine`. If the result is FSDP_ERR_FORMAT or
 * FSDP_ERR_UNSUPPORTED, the error message begins with the line. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_parse(jinja_machine *machine, const jinja_tokens *tokens,
                                             jinja_tree *tree);
