"""What the pieces of a command are called, in tree-sitter's grammar of bash."""

import re

from .wrappers import names

# What bash takes for syntax, or for an assignment, and not for the name of a command.
NO_NAME = re.compile(
    r"\w+\+?=.*|.*[{}].*|!|\(|if|then|elif|else|fi|while|until|for|select|do|done|case|esac|in"
    r"|function|\[\[|\]\]",
    re.DOTALL,
)
# Pieces that need no look of their own: what is in them is visited.
PLAIN = names(
    "program list pipeline redirected_statement subshell compound_statement if_statement "
    "elif_clause else_clause while_statement do_group case_statement case_item negated_command "
    "command_substitution process_substitution command_name word string string_content "
    "raw_string ansi_c_string concatenation number simple_expansion variable_name "
    "special_variable_name brace_expression variable_assignments heredoc_start heredoc_content "
    "heredoc_end heredoc_body file_descriptor herestring_redirect test_operator "
    "binary_expression unary_expression parenthesized_expression regex extglob_pattern"
)
# What a word of a command may be.
WORDS = frozenset(
    ("word", "string", "raw_string", "ansi_c_string", "concatenation", "number",
     "simple_expansion", "expansion", "command_substitution", "process_substitution")
)  # fmt: skip
