added_tokens.o: src/text/added_tokens.c src/text/added_tokens.h \
 src/base/json.h include/fsdp/base.h src/text/char_class.h \
 src/text/normalizer.h src/text/aligned_text.h src/text/utf8.h \
 src/text/token_model.h include/fsdp/text.h src/base/alloc.h \
 src/text/vocabulary.h
src/text/added_tokens.h:
src/base/json.h:
include/fsdp/base.h:
src/text/char_class.h:
src/text/normalizer.h:
src/text/aligned_text.h:
src/text/utf8.h:
src/text/token_model.h:
include/fsdp/text.h:
src/base/alloc.h:
src/text/vocabulary.h:
