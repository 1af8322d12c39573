"""Analysis of texts by users and models, without a vocabulary of any language."""
