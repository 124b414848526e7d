/* Properties and case changes of characters, with the same results as in Python's str. */
#pragma once
#include "src/text/jinja/value.h"

/* Decode the code point at data[*at] and move *at past it. The text is well-formed UTF-8. */
uint32_t fsdp_jinja_next_char(const char *data, size_t bytes, size_t *at);
/* Return the offset of the code point that ends just before offset `end`. */
size_t fsdp_jinja_char_before(const char *data, size_t end);
/* Write a code point as UTF-8 and return the number of bytes. */
size_t fsdp_jinja_put_char(uint32_t c, char out[4]);

bool fsdp_jinja_is_space(uint32_t c);      /* str.isspace() */
bool fsdp_jinja_is_line_end(uint32_t c);   /* true if str.splitlines() splits after it */
bool fsdp_jinja_is_identifier(uint32_t c); /* true if it may be a part of a name */

/* Classes of characters that str.isalpha() and similar methods test. */
typedef enum jinja_char_class {
    JINJA_CHAR_ALPHA,
    JINJA_CHAR_DECIMAL,
    JINJA_CHAR_DIGIT,
    JINJA_CHAR_NUMBER, /* has one of the categories Nd, Nl and No */
    JINJA_CHAR_UPPER,  /* has the property Uppercase */
    JINJA_CHAR_LOWER,  /* has the property Lowercase */
    JINJA_CHAR_TITLE,  /* a titlecase letter */
    JINJA_CHAR_PRINTABLE,
} jinja_char_class;
/* Set *is to true if the character `c` is in `class`. Return FSDP_ERR_UNSUPPORTED if `c` is not
 * ASCII and this build has no utf8proc. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_char_is(uint32_t c, jinja_char_class class, bool *is);

typedef enum jinja_case {
    JINJA_CASE_UPPER,      /* str.upper() */
    JINJA_CASE_LOWER,      /* str.lower() */
    JINJA_CASE_CAPITALIZE, /* str.capitalize() */
    JINJA_CASE_TITLE,      /* str.title() */
} jinja_case;
/* Set *out to the text, with its case changed as `how` says. Return FSDP_ERR_UNSUPPORTED if the
 * text has letters that are not ASCII and this build has no utf8proc. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_change_case(struct jinja_machine *machine,
                                                   const jinja_string *text, jinja_case how,
                                                   jinja_value *out);
