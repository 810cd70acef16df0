package openapi

import "fmt"

// examples returns what is wrong about the examples in the document.
func (d *Document) examples() (wrong []string) {
	look := func(o *operation, place string) {
		node, where := d.at(o.pointer + place)
		if example, ok := node["example"]; ok {
			if err := d.whole.validate(where+"/schema", example); err != nil {
				wrong = append(wrong, fmt.Sprintf("example of %s: %v", o.name, err))
			}
		}
	}
	for _, o := range d.operations {
		look(o, "/requestBody/content/application~1json")
		for status := range object(o.node["responses"]) {
			look(o, "/responses/"+status+"/content/application~1json")
		}
	}
	return wrong
}
