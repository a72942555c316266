# Completion of jdfl for bash.
_jdfl_of() {  # the flags, the choices of kinds and the words of a command or of a kind in a set
    case "$1" in
@ENTRIES@
        *) flags= inner= words= ;;
    esac
}
_jdfl_add() {  # offer them below a path
    local path=$1 flags=$2 inner=$3 words=$4 one rest
    for one in $flags; do offered="$offered --$path$one"; done
    for one in $words; do
        if [[ "--$path${one%%=*}" == "$before" ]]; then choices=${one#*=}; fi
    done
    for one in $inner; do  # path:set:default
        rest=${one#*:}
        offered="$offered --$path${one%%:*}"
        _jdfl_chosen "$path${one%%:*}" "${rest%%:*}" "${rest#*:}"
    done
}
_jdfl_chosen() {  # the kind on the line, or the default, and its flags
    local kind=$3 i flags inner words
    for (( i = 2; i < ${#COMP_WORDS[@]}; i++ )); do
        if (( i == COMP_CWORD )); then continue; fi
        case "${COMP_WORDS[i]}" in
            "--$1") kind=${COMP_WORDS[i+1]}; if [[ $kind == "=" ]]; then kind=${COMP_WORDS[i+2]}; fi ;;
            "--$1="*) kind=${COMP_WORDS[i]#*=} ;;
        esac
    done
    if [[ "--$1" == "$before" ]]; then _jdfl_of "$2"; choices=$flags; fi
    _jdfl_of "$2 $kind"
    _jdfl_add "$1." "$flags" "$inner" "$words"
}
_jdfl() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} offered= choices= flags inner words i
    if (( COMP_CWORD == 1 )); then
        COMPREPLY=($(compgen -W "@COMMANDS@" -- "$word"))
        return
    fi
    if [[ $word == "=" ]]; then word=; elif [[ $before == "=" ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi
    for (( i = COMP_CWORD - 1; i > 1; i-- )); do  # a flag that takes several words
        if [[ "${COMP_WORDS[i]}" == -* ]]; then
            case " @SEVERAL@ " in *" ${COMP_WORDS[i]} "*) before=${COMP_WORDS[i]} ;; esac
            break
        fi
    done
    _jdfl_of "${COMP_WORDS[1]}"
    _jdfl_add "" "$flags" "$inner" "$words"
    if [[ -n $choices && $word != -* ]]; then
        COMPREPLY=($(compgen -W "${choices//,/ }" -- "$word"))
        COMPREPLY=("${COMPREPLY[@]//\~/\\ }")
    elif [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$offered" -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}
complete -o filenames -F _jdfl jdfl
