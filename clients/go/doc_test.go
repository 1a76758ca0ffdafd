package ratelimit

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"
)

func TestAllThatIsExportedHasADocComment(t *testing.T) {
	files, err := filepath.Glob("*.go")
	more, _ := filepath.Glob("grpc/*.go")
	for _, name := range append(files, more...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		file, wrong := parser.ParseFile(files, name, nil, parser.ParseComments)
		if err != nil || wrong != nil {
			t.Fatal(err, wrong)
		}
		line := func(at token.Pos) int { return files.Position(at).Line }
		ast.FileExports(file) // the rest goes
		ast.Inspect(file, func(found ast.Node) bool {
			isDocumented := true
			switch found := found.(type) {
			case *ast.BlockStmt:
				return false
			case *ast.FuncDecl:
				isMethod := found.Recv != nil && len(found.Recv.List) > 0
				isDocumented = found.Doc != nil || isMethod && !ast.IsExported(strings.Trim(types.ExprString(found.Recv.List[0].Type), "*"))
			case *ast.GenDecl:
				isDocumented = found.Doc != nil || found.Tok == token.IMPORT
				for _, part := range found.Specs { // or each has its own
					value, isValue := part.(*ast.ValueSpec)
					isDocumented = isDocumented || isValue && value.Doc != nil
				}
			case *ast.StructType:
				for _, field := range found.Fields.List { // on one line the type's comment has it all
					isDocumented = isDocumented && (field.Doc != nil || field.Comment != nil || line(found.Pos()) == line(found.End()))
				}
			}
			if !isDocumented {
				t.Errorf("%s:%d", name, line(found.Pos()))
			}
			return true
		})
	}
}
